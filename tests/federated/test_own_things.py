"""A user's own module, tensors, partition and channels, and what is refused of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from freshband.channels import Stationary, Table
from freshband.errors import ParameterError
from freshband.federated import (
    Dataset,
    Federation,
    Partition,
    Training,
    compare,
    start_run,
)
from tests.federated.playing import every_path, named, play, tiny
from tests.reference.federated import weights_of


class Scorer(nn.Module):
    """Not a sequence of layers, and with a parameter that nobody uses."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(6, 2)
        self.scale = nn.Parameter(torch.ones(2))
        self.idle = nn.Parameter(torch.ones(3))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.dense(images.flatten(1)) * self.scale


@pytest.mark.parametrize("path", ["auto", "threads", "stacked"])
def test_a_users_module_tensors_partition_and_channels(path: Any) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 90)
    images = rng.normal(size=(90, 2, 1, 3)) + 2 * labels[:, None, None, None]
    data = Dataset.of(images[:60], labels[:60], images[60:], labels[60:])
    module = Scorer()
    before = weights_of(module)
    held = Partition(
        train=[range(i, 60, 3)[:15] for i in range(3)],
        val=[range(i, 60, 3)[15:] for i in range(3)],
    )
    settings = Training(
        clients=3, rounds=15, matching="priority", weights="contribution", path=path, batch_size=5
    )
    states = np.ones((15, 3))
    states[3:6] = 0
    records, _ = play(
        settings, dataset=data, model=module, partition=held, channels=Table(states=states)
    )
    assert records[-1].accuracy > 0.9
    assert [record.delivered.sum() for record in records] == [3] * 3 + [0] * 3 + [3] * 9
    for name, values in weights_of(module).items():
        assert torch.equal(values, before[name])  # the user's module is as it was


def test_the_module_holds_the_servers_weights() -> None:
    with Federation(tiny(precision="float32")) as run:
        list(run)
        module = run.module()
        for name, values in named(run, run.state.model).items():
            assert torch.equal(module.get_parameter(name), values)
        with torch.no_grad():
            scores = module(run.dataset.normalise(run.dataset.test_images))
        right = (scores.argmax(1) == run.dataset.test_labels).double().mean()
        run.state.model.zero_()
        assert float(right) == pytest.approx(play(tiny(precision="float32"))[0][-1].accuracy)
    assert all(values.any() for values in module.parameters())  # a copy


class Mixed(nn.Module):
    """Half a scalar, and the rest in single precision."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5, dtype=torch.float16))
        self.dense = nn.Linear(16, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.dense(images.flatten(1).to(self.dense.weight.dtype))
        return scores * self.scale


@every_path
def test_no_parameter_is_rounded_to_the_type_of_another(path: Any) -> None:
    module = Mixed()
    settings = tiny(model=None, model_options={}, path=path, precision="float32")
    with Federation(settings, model=module) as run:
        for name, values in run.module().named_parameters():
            assert values.dtype == module.get_parameter(name).dtype
            assert torch.equal(values, module.get_parameter(name)), name
        run.step()


class Forgetful(nn.Module):
    """Draws random numbers where no layer shows it."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(16, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(self.dense(images.flatten(1)), 0.5, self.training)


class Asking(nn.Module):
    """Asks for what it is not given, where there are values to compute with."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(16, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.dense(images.flatten(1))
        return scores if scores.is_meta else scores * {}["mask"]


class Still(nn.Module):
    """Forgets where its outputs come from."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(16, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.dense(images.flatten(1)).detach()
        return scores


def frozen(everything: bool = False) -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 4), nn.Linear(4, 3))
    (module if everything else module[1]).requires_grad_(False)
    return module


def test_batches_of_one_sample_are_tried_as_such() -> None:
    module = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(16), nn.Linear(16, 3))
    with pytest.raises(
        ParameterError, match=r"^model must take samples, \(1, 1, 4, 4\) .* more than"
    ):
        Federation(tiny(model=None, model_options={}, batch_size=1), model=module)


def test_unknown_arguments_are_named() -> None:
    unknown: Any = {"modle": Asking()}
    with pytest.raises(TypeError, match="unexpected argument 'modle'; did you mean 'model'"):
        Federation(tiny(), **unknown)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(16, 4)), r"to \(2, 3\), got \(2, 4\)"),
        (nn.Sequential(), "model must have parameters"),
        (Still(), "model must have outputs that depend on its parameters, those of Still have no"),
        (Asking(), r"to \(2, 3\), Asking fails: KeyError: 'mask'"),
        (Asking().to("meta"), "model must have its weights, Asking is on the device 'meta'"),
        (frozen(everything=True), "Sequential has none but frozen ones"),
        (nn.Sequential(nn.Flatten(), nn.LazyLinear(3)), "lazy layers: call it on a batch first"),
    ],
)
@every_path
def test_modules_that_cannot_be_trained_are_refused(
    module: nn.Module, message: str, path: Any
) -> None:
    with pytest.raises(ParameterError, match=message):
        Federation(tiny(model=None, model_options={}, path=path), model=module)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Sequential(nn.Flatten(), nn.BatchNorm1d(16), nn.Linear(16, 3)), "buffer '1.running_"),
        (nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(16, 3)), "layer '1' is a Dropout"),
        (nn.Sequential(nn.RReLU(), nn.Flatten(), nn.Linear(16, 3)), "layer '0' is a RReLU"),
        (frozen(), "parameter '1.weight' is frozen"),
        (Forgetful(), "Forgetful draws random numbers"),
    ],
)
def test_the_path_for_plain_modules_refuses_others(module: nn.Module, message: str) -> None:
    with pytest.raises(ParameterError, match=rf"^path 'stacked' is for .*{message}.*or 'threads'$"):
        Federation(tiny(model=None, model_options={}, path="stacked"), model=module)


def test_dropout_of_nothing_is_fine() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Dropout(0.0), nn.Linear(16, 3))
    play(tiny(model=None, model_options={}, rounds=1), model=module)


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        (
            {"channels": Stationary(means=[[0.5] * 5] * 3, per_client=True)},
            "clients must be 3, those Stationary gives links for, got 4",
        ),
        ({"partition": Partition(train=[[0], [1]], val=[[], []])}, "must have 4 clients, got 2"),
        (
            {"partition": Partition(train=[[0], [1], [2], [999]], val=[[], [], [], []])},
            "below 150, got sample 999",
        ),
    ],
)
def test_objects_that_do_not_fit_are_refused(objects: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Federation(tiny(), **objects)


class Letters(torch.utils.data.Dataset):
    """A data set as torch knows them: read one by one."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("nobody reads a data set to refuse it")


TENSORS = torch.utils.data.TensorDataset(torch.rand(8, 1, 4, 4), torch.arange(8) % 3)
IDS = np.arange(150) % 4
OF_TENSORS = r"Dataset\.of\(train_images, train_labels, test_images, test_labels\)$"
OF_LISTS = r"Partition\(train=held, val=\[\[\]\] \* len\(held\)\), where held is "


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ({"dataset": TENSORS}, r"with Dataset\.of\(\*train\.tensors, \*test\.tensors\)$"),
        ({"dataset": Letters()}, r"with Dataset\.of_samples\(train, test\)$"),
        (
            {"dataset": {"train": TENSORS.tensors, "validation": TENSORS.tensors}},
            r"of a mapping 'train' and 'test' are used, it has \['train', 'validation'\]$",
        ),
        ({"dataset": {}}, OF_TENSORS),
        ({"dataset": TENSORS.tensors[0]}, OF_TENSORS),
        ({"dataset": Dataset}, "got <class .*" + OF_TENSORS),
        ({"dataset": "digits"}, r"the settings, Training\(dataset='digits'\)$"),
        ({"partition": []}, OF_LISTS),
        ({"partition": Partition}, "got <class .*" + OF_LISTS),
        ({"partition": "iid"}, r"the settings, Training\(partition='iid'\)$"),
        ({"model": Scorer}, "got <class .*Scorer'>; give an object, not its class$"),
        ({"model": Scorer().state_dict()}, r"got OrderedDict\(.*"),
        ({"channels": Stationary}, r"got <class .*with, for example, Stationary\(means="),
        ({"channels": np.ones((12, 6))}, "a channel model, got array"),
        ({"channels": "piecewise"}, r"the settings, Training\(channels='piecewise'\)$"),
        ({"clients": 4}, r"those of another Federation, got 4; .*\(clients=\.\.\.\)$"),
        ({"alter_update": 0}, "a function of round, client and update, got 0$"),
        (
            {"settings": {"clients": 4}},
            r"a Training, got .*; make one with Training\(\*\*settings\)$",
        ),
        ({"settings": Training}, r"a Training, got <class .*Training\(clients=10, rounds=60\)$"),
    ],
)
def test_things_of_another_kind_are_refused_in_one_line(
    objects: dict[str, Any], message: str
) -> None:
    name = next(iter(objects))
    with pytest.raises(ParameterError, match=f"^{name} must be .*{message}") as told:
        Federation(**{"settings": tiny(), **objects})
    assert "\n" not in str(told.value)


def test_what_is_said_of_things_of_another_kind_is_true() -> None:
    train, test = TENSORS, TENSORS
    data = Dataset.of(*train.tensors, *test.tensors)
    assert (data.n_train, data.n_classes) == (8, 3)
    ids = ["anna", "ben", "anna", "cleo"]
    held = [np.flatnonzero(np.asarray(ids) == user) for user in np.unique(ids)]
    partition = Partition(train=held, val=[[]] * len(held))
    assert [some.tolist() for some in partition.train] == [[0, 2], [1], [3]]
    assert Training(**{"clients": 4}).clients == 4


@pytest.mark.parametrize("settings", [{"clients": 4}, None, Training])
def test_runs_and_comparisons_want_settings(settings: Any, tmp_path: Path) -> None:
    for begin in (
        lambda: start_run(settings, tmp_path / "run"),
        lambda: compare(settings, ["random"], progress=False),
    ):
        with pytest.raises(ParameterError, match="settings must be a Training, got"):
            begin()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "thing"),
    [
        ("dataset", TENSORS),
        ("dataset", {"train": 1}),
        ("model", Scorer()),
        ("channels", Stationary(means=[0.5] * 20)),
        ("partition", IDS),
    ],
)
def test_settings_hold_names_and_say_where_things_go(name: str, thing: Any) -> None:
    hint = rf"^{name} must be a name, got .* goes to Federation\(settings, {name}=\.\.\.\)$"
    with pytest.raises(ParameterError, match=hint):
        Training(**{name: thing})


def test_contributions_need_validation_samples_of_everybody() -> None:
    bare = Partition(train=[[0], [1], [2], [3]], val=[[4], [5], [], [6]])
    play(tiny(rounds=1), partition=bare)
    with pytest.raises(ParameterError, match="client 2 has none"):
        Federation(tiny(matching="priority"), partition=bare)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "gpu"}, "device must be 'auto', 'cpu' or a GPU like 'cuda', got 'gpu'"),
        ({"device": "cpu", "precision": "bf16"}, "for GPUs, the device is 'cpu'"),
        ({"device": "cpu", "precision": "tf32"}, "for GPUs, the device is 'cpu'"),
    ],
)
def test_devices_that_cannot_do_it_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Federation(tiny(**options))


def test_more_rounds_than_there_are() -> None:
    with Federation(tiny(rounds=2)) as run:
        assert [record.round for record in run] == [1, 2]
        assert list(run) == []
        with pytest.raises(ParameterError, match="all rounds are played"):
            run.step()
