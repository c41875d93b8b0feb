"""Server rules of the user's own: they go on where interrupted, are compared, and are checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from freshband.errors import ParameterError, RuleError
from freshband.federated import (
    Federation,
    compare,
    resume_run,
    start_run,
)
from freshband.federated.algorithms import Arrivals, Rule, register
from freshband.federated.algorithms.average import Average
from freshband.federated.algorithms.eager import Eager
from freshband.federated.algorithms.fedbuff import FedBuff
from tests.federated.playing import play, tiny


class Remembered(NamedTuple):
    """What `Momentum` keeps from round to round."""

    velocity: torch.Tensor
    moves: Any


class Momentum(Rule):
    """Not registered, with a memory of its own."""

    keeps: float = 0.5

    def start(self, model: torch.Tensor) -> Remembered:
        return Remembered(torch.zeros_like(model), np.zeros(1, np.int64))

    def apply(self, model: torch.Tensor, memory: Remembered, arrivals: Arrivals) -> tuple[Any, int]:
        memory.velocity.mul_(self.keeps)
        for client in arrivals.clients:
            memory.velocity.add_(arrivals.updates[client], alpha=arrivals.client_lr / 4)
        model.sub_(memory.velocity)
        memory.moves[:] += 1
        return np.where(arrivals.delivered, arrivals.client_lr / 4, 0.0), 1


def test_a_users_rule_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    expected, model = play(tiny(), algorithm=Momentum(keeps=0.7))
    with start_run(tiny(), tmp_path / "run", algorithm=Momentum(keeps=0.7)) as run:
        for record in run:
            if record.round == 5:
                run.stop()
    with pytest.raises(ParameterError, match="algorithm must be given: the run began with one"):
        resume_run(tmp_path / "run")
    with pytest.raises(ParameterError, match="algorithm must be the one the run began with"):
        resume_run(tmp_path / "run", algorithm=Momentum(keeps=0.6))
    with resume_run(tmp_path / "run", algorithm=Momentum(keeps=0.7)) as run:
        records = [*run.records, *run]
        assert run.federation.state.memory.moves.tolist() == [12]
        assert torch.equal(run.federation.state.model, model)
    assert all(one.same_as(other) for one, other in zip(records, expected, strict=True))
    assert not torch.equal(model, play(tiny())[1])


def test_a_users_rule_is_wrapped_as_any_other() -> None:
    rule = Average(rule=Eager(rule=Momentum(), local_rounds=3))
    with Federation(tiny(), algorithm=rule) as run:
        assert run.server.local_rounds == 3
        list(run)
        assert run.server.served is run.state.memory.average
        assert run.state.memory.rule.moves.tolist() == [12]


def test_policies_are_compared_under_a_users_rule() -> None:
    settings = tiny(precision="float32", scheduler="random")
    result = compare(
        settings, "random,cucb,random@fedavg", algorithm=Momentum(keeps=0.7), progress=False
    )
    assert result.attrs["own_algorithm"] == "Momentum(keeps=0.7)"
    records, _ = play(settings, algorithm=Momentum(keeps=0.7))
    assert result.loss.sel(policy="random")[0].values.tolist() == [one.loss for one in records]
    records, _ = play(tiny(precision="float32", scheduler="random", algorithm="fedavg"))
    found = result.loss.sel(policy="random@fedavg")[0].values
    assert found.tolist() == [one.loss for one in records]
    with pytest.raises(ParameterError, match="algorithm must be a Rule, got"):
        # A class in place of an object is what is tested.
        compare(settings, "random", algorithm=Momentum, progress=False)  # type: ignore[arg-type]  # a class


def test_two_rules_cannot_remember_by_the_same_name() -> None:
    class Twice(NamedTuple):
        average: torch.Tensor

    class Clashing(Momentum):
        def start(self, model: torch.Tensor) -> Any:
            return Twice(model.clone())

    with pytest.raises(RuleError, match="two rules remember 'average': one must call it otherwis"):
        Federation(tiny(), algorithm=Average(rule=Clashing()))


@pytest.mark.parametrize("memory", [{"velocity": 1}, (1, 2), None, [3]], ids=str)
def test_what_a_rule_remembers_must_have_names(memory: Any) -> None:
    class Forgetful(Momentum):
        def start(self, model: torch.Tensor) -> Any:
            return memory

    with pytest.raises(RuleError, match="a rule must remember a NamedTuple of tensors, got"):
        Federation(tiny(), algorithm=Forgetful())


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "apply must return"),
        ((np.zeros(3), 1), "must return 4 steps as a float array"),
        (([0.0] * 4, 1), "must return 4 steps as a float array"),
        ((np.zeros(4), 0.5), "must return the versions passed second, got 0.5"),
        ((np.zeros(4), -1), "must return the versions passed second, got -1"),
    ],
    ids=str,
)
def test_what_a_users_rule_returns_is_checked(returned: Any, message: str) -> None:
    class Broken(Rule):
        def apply(self, model: torch.Tensor, memory: Any, arrivals: Arrivals) -> Any:
            return returned

    with Federation(tiny(), algorithm=Broken()) as run, pytest.raises(RuleError, match=message):
        run.step()


def test_a_rule_without_apply_is_refused_when_it_is_registered_or_made() -> None:
    class Half(Rule):
        pass

    with pytest.raises(ParameterError, match="algorithm 'half' needs a method 'apply'"):
        register("half")(Half)
    with pytest.raises(TypeError, match=r"abstract method '?apply"):
        Half()


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("fedbuff", r"a name goes into the settings, Training\(algorithm='fedbuff'\)"),
        (FedBuff, "make one with, for example, FedBuff"),
        (lambda model: model, "make one with, for example, FedBuff"),
    ],
    ids=["name", "class", "function"],
)
def test_what_is_no_rule_is_refused(given: Any, hint: str) -> None:
    with pytest.raises(ParameterError, match=f"algorithm must be a Rule, got .*; {hint}"):
        Federation(tiny(), algorithm=given)
    if not isinstance(given, str):
        with pytest.raises(ParameterError, match=r"algorithm must be a name, .*Federation\(setti"):
            tiny(algorithm=given)
