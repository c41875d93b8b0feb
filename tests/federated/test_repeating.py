"""The same run again: restored, with other workers, in company."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from freshband import Coordinator
from freshband.channels import Stationary
from freshband.errors import FileError, ParameterError
from freshband.federated import Federation, load_dataset, split_samples, train_together
from tests.federated.playing import KINDS, assert_identical, every_path, play, tiny

# ------------------------------------------------------------------------------ checkpoints


def saved(run: Federation) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return a checkpoint as a file would hold it."""
    tensors, facts = run.checkpoint()
    return {name: one.clone() for name, one in tensors.items()}, json.loads(json.dumps(facts))


@pytest.mark.parametrize(
    ("kind", "scheduler"), [*((kind, "glr-cucb") for kind in KINDS), ("async", "random")]
)
def test_a_restored_run_continues_bit_for_bit(kind: str, scheduler: str) -> None:
    settings = tiny(scheduler=scheduler, precision="float32", **KINDS[kind])
    kept = []
    with Federation(settings) as run:
        whole = []
        for record in run:
            whole.append(record)
            if record.round in (1, 5, 6, 11):
                kept.append(saved(run))
        model = run.state.model.clone()
    for tensors, facts in kept:
        with Federation.restore(tensors, facts) as again:
            assert again.round == facts["round"]
            assert_identical(list(again), whole[facts["round"] :])
            assert torch.equal(again.state.model, model)


def test_a_run_not_begun_and_a_run_at_its_end_restore_too() -> None:
    settings = tiny(**KINDS["priority"])
    with Federation(settings) as run:
        start = saved(run)
        whole = list(run)
        end = saved(run)
    with Federation.restore(*start) as again:
        assert_identical(list(again), whole)
    with Federation.restore(*end) as again:
        assert list(again) == []
        with pytest.raises(ParameterError, match="all rounds are played"):
            again.step()


def test_a_restored_run_needs_its_own_objects() -> None:
    data = load_dataset("synthetic", seed=9, shape=(1, 4, 4), n_classes=3, n_train=99, n_test=9)
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    objects = {
        "dataset": data,
        "model": module,
        "channels": Stationary(means=[0.7] * 5),
        "partition": split_samples(data.train_labels, 4, scheme="iid"),
    }
    settings = tiny(model=None, model_options={})
    with Federation(settings, **objects) as run:
        run.step()
        tensors, facts = saved(run)
        rest = list(run)
    with Federation.restore(tensors, facts, **objects) as again:
        assert_identical(list(again), rest)
    with pytest.raises(FileError, match="cannot restore this run: 'model' must be"):
        Federation.restore(tensors, facts, **{**objects, "model": "mlp"})


@pytest.mark.parametrize("more", [{}, {"local_rounds": 3}, KINDS["priority"]], ids=str)
def test_a_round_that_broke_off_can_be_played_again(more: dict[str, Any]) -> None:
    settings = tiny(**more)
    expected, model = play(settings)
    with Federation(settings) as run:
        records = [run.step() for _ in range(4)]
        train = run.clients.train

        def interrupted(*arguments: Any) -> None:
            train(*arguments)
            raise KeyboardInterrupt

        run.clients.train = interrupted  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            run.step()
        run.clients.train = train  # type: ignore[method-assign]
        assert_identical([*records, *run], expected)
        assert torch.equal(run.state.model, model)


def _coordinator(*arguments: Any) -> torch.Tensor:
    data = Coordinator(*arguments).to_bytes()
    return torch.from_numpy(np.frombuffer(data, np.uint8).copy())


DAMAGE: dict[str, Any] = {
    "no model": lambda tensors, facts: tensors.pop("model"),
    "no array": lambda tensors, facts: tensors.pop("arrays.heard"),
    "no memory": lambda tensors, facts: tensors.pop("memory.buffer"),
    "no coordinator": lambda tensors, facts: tensors.pop("coordinator"),
    "no round": lambda tensors, facts: facts.pop("round"),
    "no settings": lambda tensors, facts: facts.pop("settings"),
    "a round past the end": lambda tensors, facts: facts.update(round=1000),
    "a round that is none": lambda tensors, facts: facts.update(round=None),
    "a shorter model": lambda tensors, facts: tensors.update(model=tensors["model"][1:]),
    "another precision": lambda tensors, facts: tensors.update(model=tensors["model"].float()),
    "fewer clients": lambda tensors, facts: tensors.update(updates=tensors["updates"][:2]),
    "more errors": lambda tensors, facts: tensors.update({"arrays.errors": torch.zeros(5)}),
    "another count": lambda tensors, facts: tensors.update({"memory.buffered": torch.zeros(1)}),
    "half a coordinator": lambda tensors, facts: tensors.update(
        coordinator=tensors["coordinator"][:-40]
    ),
    "another policy": lambda tensors, facts: tensors.update(
        coordinator=_coordinator("random", 4, 6, 3)
    ),
    "a coordinator of fewer": lambda tensors, facts: tensors.update(
        coordinator=_coordinator("cucb", 3, 6, 3)
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_does_not_fit_is_not_restored(damage: str) -> None:
    with Federation(tiny(algorithm="fedbuff", contribution="paper")) as run:
        run.step()
        tensors, facts = saved(run)
    DAMAGE[damage](tensors, facts)
    with pytest.raises(FileError):
        Federation.restore(tensors, facts)


# ------------------------------------------------------------------------------ workers, company


@every_path
@pytest.mark.parametrize(
    "options", [{}, {"model": "small-cnn", "model_options": {"widths": (2, 3)}}], ids=["mlp", "cnn"]
)
def test_workers_change_nothing(path: Any, options: dict[str, Any]) -> None:
    """The same to the last bit, in the precision people use."""
    settings = {"path": path, "precision": "float32", "clients": 9, "matching": "priority"}
    settings |= {"channel_options": {"means": [0.5] * 12}, "rounds": 6, "weights": "contribution"}
    alone, model = play(tiny(**settings, **options, workers=1))
    for workers in (2, 3):
        records, same = play(tiny(**settings, **options, workers=workers))
        assert_identical(records, alone)
        assert torch.equal(model, same)


def test_the_same_seed_is_the_same_run_and_another_is_not() -> None:
    (first, model), (again, same) = play(tiny()), play(tiny())
    assert_identical(first, again)
    assert torch.equal(model, same)
    for other in ({"seed": 4}, {"run": 1}):
        assert not torch.equal(model, play(tiny(**other))[1])


def test_torch_threads_are_left_as_they_were() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        play(tiny(rounds=2))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@every_path
def test_training_together_is_training_alone(path: Any) -> None:
    data = load_dataset("synthetic", seed=1, shape=(1, 4, 4), n_classes=3, n_train=150, n_test=50)
    several = [
        tiny(path=path, precision="float32", **KINDS["priority"]),
        tiny(path=path, precision="float32", algorithm="fedbuff", seed=5, scheduler="random"),
        tiny(path=path, precision="float32", algorithm="fedavg", run=2, eval_every=4),
        tiny(path=path, precision="float32", algorithm="fedasync", clients=3),
    ]
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 5), nn.ReLU(), nn.Linear(5, 3))
    several = [s.model_copy(update={"model_options": {}}) for s in several]
    alone = [play(s, dataset=data, model=model) for s in several]
    with Federation(several[0], dataset=data, model=model) as first:
        shared = {"dataset": data, "model": model, "clients": first.clients}
        runs = [first, *(Federation(s, **shared) for s in several[1:])]
        together = list(zip(*train_together(runs), strict=True))
        for run, records, (expected, weights) in zip(runs, together, alone, strict=True):
            if path == "threads":
                assert_identical(list(records), expected)
                assert torch.equal(run.state.model, weights)
                continue
            assert (run.state.model - weights).abs().max() < 1e-4
            for record, same in zip(records, expected, strict=True):
                assert record.delivered.tolist() == same.delivered.tolist()
                assert record.loss == pytest.approx(same.loss, abs=1e-4, nan_ok=True)


def test_training_together_ends_with_the_shortest_and_needs_something_shared() -> None:
    with Federation(tiny(rounds=5)) as first:
        other = Federation(tiny(rounds=3), clients=first.clients)
        assert [[r.round for r in records] for records in train_together([first, other])] == [
            [1, 1], [2, 2], [3, 3],
        ]  # fmt: skip
        assert first.step().round == 4
        faster = Federation(tiny(client_lr=0.1), clients=first.clients)
        with pytest.raises(ParameterError, match=r"client_lr, .* must be the same"):
            list(train_together([first, faster]))
        with Federation(tiny()) as stranger, pytest.raises(ParameterError, match="same clients"):
            list(train_together([first, stranger]))
    assert list(train_together([])) == []


def test_clients_opened_with_other_data_are_not_shared() -> None:
    """Data made up from another seed: who holds what would be of one, what they hold of another."""
    with Federation(tiny(seed=3)) as first:
        with pytest.raises(ParameterError, match="same data set"):
            Federation(tiny(seed=4), clients=first.clients)
        Federation(tiny(seed=4), clients=first.clients, dataset=first.dataset)
