"""Data sets of other libraries, columns, lists of samples, and one data set per client."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from freshband.errors import ParameterError
from freshband.federated import Dataset, Federation, Training, split_samples
from freshband.federated.data import Samples
from tests.federated.playing import play, tiny

IMAGES, LABELS = torch.arange(96, dtype=torch.uint8).reshape(6, 1, 4, 4), torch.arange(6) % 3


class Listed(torch.utils.data.Dataset):
    """A data set as torch knows them, whose samples are anything."""

    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]


class Picture:
    """What matters of a picture of PIL."""

    def __init__(self, pixels: np.ndarray) -> None:
        self.pixels = pixels

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.pixels

    def convert(self, mode: str) -> Any: ...
    def getbands(self) -> Any: ...


class HuggingFace:
    """What matters of a data set of Hugging Face: columns by name, samples by number."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self.columns, self.column_names = columns, list(columns)

    def __len__(self) -> int:
        return len(self.columns[self.column_names[0]])

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self.columns[key]
        return {name: values[key] for name, values in self.columns.items()}


ROWS = [(image, int(label)) for image, label in zip(IMAGES, LABELS, strict=True)]
SOURCES = {
    "tensors": (IMAGES, LABELS),
    "arrays": (IMAGES.numpy(), LABELS.numpy()),
    "TensorDataset": TensorDataset(IMAGES, LABELS),
    "tuples": Listed(ROWS),
    "list": ROWS,
    "mappings": Listed([{"image": image, "label": label} for image, label in ROWS]),
    "columns": {"img": IMAGES.numpy(), "labels": LABELS.tolist()},
    "pictures": Listed([(Picture(image[0].numpy()), label) for image, label in ROWS]),
    "colour": Listed([(Picture(np.moveaxis(i.numpy(), 0, -1)), y) for i, y in ROWS]),
    "hugging face": HuggingFace(
        {"id": list("abcdef"), "image": [Picture(i[0].numpy()) for i in IMAGES], "label": LABELS}
    ),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_every_source_gives_the_same_images(kind: str) -> None:
    data = Dataset.of_samples(SOURCES[kind], SOURCES["tensors"])
    assert type(data) is Dataset
    assert torch.equal(data.train_images, IMAGES)
    assert torch.equal(data.train_labels, LABELS)
    assert data.n_classes == 3
    plain = Dataset.of(IMAGES, LABELS, IMAGES, LABELS)
    assert (data.mean, data.std) == (plain.mean, plain.std)


def test_tokens_stay_whole_numbers_and_columns_can_be_chosen() -> None:
    source = HuggingFace(
        {"input_ids": [[1, 2], [3, 4], [5, 6]], "mask": [[True, False]] * 3, "next": [7, 8, 9],
         "user": ["b", "a", "b"]}
    )  # fmt: skip
    data = Dataset.of_samples(
        source, source, inputs=["input_ids", "mask"], target="next", columns=["user"]
    )
    assert isinstance(data, Samples)
    tokens, mask = data.inputs("train", torch.tensor([1]))
    assert (tokens.tolist(), mask.dtype) == ([[3, 4]], torch.bool)
    assert (data.n_classes, data.labelled, data.shape) == (10, True, (2,))
    assert data.columns["user"].tolist() == ["b", "a", "b"]
    held = split_samples(
        data.train_labels, 2, scheme="column", columns=data.columns, column="user", val_fraction=0
    )
    assert [one.tolist() for one in held.train] == [[1], [0, 2]]


def test_parts_that_are_held_out_take_everything_along() -> None:
    rows = torch.arange(20.0).reshape(10, 2)
    parts = (rows, rows[:, :1], rows[:, 1])
    data = Dataset.of_samples(parts, parts, columns={"user": np.arange(10)}, name="rows")
    smaller = data.hold_out(0.2)
    assert (smaller.n_train, smaller.n_test) == (8, 2)
    first, second = smaller.inputs("train", slice(None))
    assert torch.equal(first[:, :1], second)
    assert torch.equal(first[:, 1], smaller.train_labels)
    assert (2 * smaller.columns["user"] == first[:, 0].numpy()).all()
    assert torch.equal(smaller.to("cpu").inputs("test", [0])[1], smaller.inputs("test", [0])[1])


def loaders() -> Any:
    return torch.utils.data.DataLoader(Listed(ROWS))


class Endless(torch.utils.data.IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(ROWS)


@pytest.mark.parametrize(
    ("train", "options", "message"),
    [
        (IMAGES, {}, "^train must be a torch or torchvision data set, a Hugging Face one, a mapp"),
        (loaders(), {}, "^train must be .*; make a list of its samples first$"),
        (Endless(), {}, "^train must be .*; make a list of its samples first$"),
        (Listed([]), {}, "^train must have a length of at least 1"),
        (Listed([1, 2]), {}, "^train must have samples that are tuples of inputs and a target, or"),
        (Listed([(1, 2), (3,)]), {}, r"^train must have samples of the same parts, \[0, 1\]$"),
        ({"text": ["a"], "label": [0]}, {}, r"^train has the columns \['text', 'label'\]: say wh"),
        ({"text": ["a"], "label": [0]}, {"inputs": "text"}, "holds text, 'a': turn it into numb"),
        ({"x": [[1], [1, 2]], "y": [0, 1]}, {}, r"column 'x': samples must all have one shape, go"),
        (
            {"x": [1.0], "y": [0]},
            {"inputs": "z"},
            r"^train has no column 'z', it has \['x', 'y'\]$",
        ),
        ((IMAGES, LABELS), {"target": "y"}, "^train has no named columns to choose 'y' from"),
        ((IMAGES, LABELS[:4]), {"normalise": False}, "^train must have one target per sample, at"),
        (
            ({"x": [np.nan], "y": [1.0]}),
            {},
            "^train must be finite, got NaN or infinity in sample 0",
        ),
        (({"x": [[1.0, 2]], "y": [1.0]}), {"normalise": True}, "^normalise is for images"),
        ((IMAGES, LABELS), {"columns": {"user": [1]}}, "^columns must be arrays of one entry per"),
        (({"x": [[1.0, 2]], "y": [1.0]}), {}, "^test samples must have the shape and type of"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(
    train: Any, options: dict[str, Any], message: str
) -> None:
    test: Any = {"x": [[1.0]], "y": [1.0]} if "test samples" in message else train
    with pytest.raises(ParameterError, match=message) as told:
        Dataset.of_samples(train, test, **options)
    assert "\n" not in str(told.value)


# ------------------------------------------------------------------------------- partitions

MANY = torch.rand(40, 1, 4, 4, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 3
LISTS = [list(range(at, 40, 4)) for at in range(4)]


@pytest.mark.parametrize(
    "partition",
    [
        LISTS,
        dict(zip("abcd", LISTS, strict=True)),
        np.arange(40) % 4,
        torch.arange(40) % 4,
        [f"user {at % 4}" for at in range(40)],
    ],
)
def test_partitions_of_ones_own(partition: Any) -> None:
    settings = tiny(model_options={"hidden": []}, rounds=2, val_fraction=0.2)
    with Federation(settings, dataset=(MANY, MANY), partition=partition) as run:
        assert [run.partition.held(client).tolist() for client in range(4)] == LISTS
        assert [len(own) for own in run.partition.val] == [2] * 4
        list(run)


def test_one_data_set_per_client() -> None:
    each = [(MANY[0][own], MANY[1][own]) for own in LISTS]
    data = Dataset.of_clients(each, MANY)
    settings = tiny(
        model_options={"hidden": []}, rounds=2, partition="column", partition_options={}
    )
    with Federation(settings, dataset=data) as run:
        assert [own.tolist() for own in map(run.partition.held, range(4))] == [
            list(range(10 * client, 10 * client + 10)) for client in range(4)
        ]
    unsaid = Training(clients=4, rounds=3, model="mlp")
    with pytest.raises(ParameterError, match="partition must be chosen for a data set that says"):
        Federation(unsaid, dataset=data)
    dealt = unsaid.model_copy(update={"partition": "iid"})
    with Federation(dealt, dataset=data) as run:
        assert run.partition.held(0).tolist() != list(range(10))
    listed = [Listed(list(zip(*one, strict=True))) for one in each]
    assert torch.equal(Dataset.of_clients(listed, MANY).train_images, data.train_images)
    with pytest.raises(ParameterError, match="train must be a list with a torch or torchvision"):
        Dataset.of_clients(MANY[0], MANY)
    with pytest.raises(ParameterError, match=r"train\[1\] must be a torch or torchvision data set"):
        Dataset.of_clients([MANY, 3], MANY)
    with pytest.raises(ParameterError, match="samples of all clients must have one shape"):
        Dataset.of_clients([(MANY[0], MANY[1]), (MANY[0][:, 0], MANY[1])], MANY)


@pytest.mark.parametrize(
    ("settings", "partition", "message"),
    [
        ({}, [0, 1, 2], "the client of each of the 40 training samples, got 3$"),
        ({}, [[0], [1]], r"must have 4 clients, got 2: Training\(clients=2\)$"),
        ({}, [[0], [1], [], [2]], "partition must give every client a sample, client 2 has none$"),
        ({}, [[0], [1], [2], ["a"]], "partition must hold a list of whole numbers for each client"),
        (
            {"partition": "column", "partition_options": {"column": "user"}}, None,
            "column must be one of the data set's, which has none, got 'user'; Dataset.of_samples",
        ),
    ],
)  # fmt: skip
def test_partitions_that_do_not_fit(settings: Any, partition: Any, message: str) -> None:
    options = {"partition_options": {}, **settings}
    with pytest.raises(ParameterError, match=message):
        Federation(tiny(**options), dataset=(MANY, MANY), partition=partition)


def test_users_are_dealt_whole_where_there_are_more_than_clients() -> None:
    users = np.repeat(np.arange(10), 5)
    held = split_samples(
        np.zeros(50, int), 4, scheme="column", columns={"client": users}, val_fraction=0
    )
    owners = [sorted(set(users[own].tolist())) for own in held.train]
    assert sorted(user for some in owners for user in some) == list(range(10))
    assert sorted(map(len, owners)) == [2, 2, 3, 3]
    with pytest.raises(ParameterError, match="clients must be at most 10, the number of differ"):
        split_samples(np.zeros(50, int), 11, scheme="column", columns={"client": users})


def test_a_pair_of_data_sets_trains() -> None:
    train = Listed([(image, int(label)) for image, label in zip(*MANY, strict=True)])
    records, _ = play(tiny(rounds=1), dataset={"train": train, "test": train})
    same, _ = play(tiny(rounds=1), dataset=Dataset.of(*MANY, *MANY))
    assert records[0].same_as(same[0])
    assert Training().dataset == "digits"
