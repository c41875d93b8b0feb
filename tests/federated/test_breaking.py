"""What breaks where a model is evaluated, or in a rule beside things that stay with clients."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from freshband.errors import RuleError
from freshband.federated import Federation, Training, resume_run, start_run
from freshband.federated.algorithms import Arrivals, Rule
from freshband.federated.algorithms.eager import Eager
from tests.federated.playing import assert_identical, play, tiny

SWITCH = {"how": "", "round": 0}


def own(**changes: Any) -> Training:
    return tiny(model=None, model_options={}, **changes)


class Counting(nn.Module):
    """Breaks when it is evaluated on the test set in a round of one's choice."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.norm = nn.Linear(16, 3), nn.BatchNorm1d(16)
        nn.init.zeros_(self.dense.weight)
        nn.init.zeros_(self.dense.bias)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        rows: torch.Tensor = self.dense(self.norm(images.flatten(1)))
        if not self.training and len(images) == 50:
            SWITCH["round"] -= 1
            if SWITCH["round"] == 0 and SWITCH["how"] == "raises":
                raise ZeroDivisionError("no\nmore")
            return rows[:, :1] if SWITCH["round"] == 0 and SWITCH["how"] == "shape" else rows
        return rows


def share(outputs: torch.Tensor, targets: torch.Tensor) -> Any:
    """Accuracy that breaks in the n-th call with the samples of the test set, or of a client."""
    of_client = len(outputs) not in (2, 50)  # 2 in the trial before the first round
    if of_client if SWITCH["how"] == "client" else len(outputs) == 50:
        SWITCH["round"] -= 1
        if SWITCH["round"] == 0:
            if SWITCH["how"] in ("raises", "client"):
                raise KeyError("gone")
            return {"NaN": float("nan"), "none": None}[SWITCH["how"]]
    return (outputs.argmax(dim=1) == targets).double().mean()


def broken(settings: Training, folder: Path, how: str, after: int, **objects: Any) -> str:
    SWITCH.update(how=how, round=after)
    with start_run(settings, folder, **objects) as run, pytest.raises(RuleError) as caught:
        list(run)
    SWITCH.update(how="", round=0)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("last", [7, 12], ids=["in the middle", "in the last round"])
@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("raises", "KeyError: 'gone'"),
        ("NaN", "metric must return a finite number, got nan"),
        ("none", "metric must return one number, got None"),
    ],
)
def test_a_metric_that_breaks_is_mended_and_its_round_is_not_lost(
    how: str, told: str, last: int, tmp_path: Path
) -> None:
    expected, model = play(tiny(), metric=share)
    found = broken(tiny(), tmp_path / "run", how, last, metric=share)
    assert found.startswith(f"evaluation in round {last}: {told}; round {last} of 12 is safe: go ")
    with resume_run(tmp_path / "run", metric=share) as run:
        assert run.round == last - 1
        assert [record.round for record in run] == list(range(last, 13))
        assert torch.equal(run.federation.state.model, model)
        assert_identical(run.records, expected)
    with resume_run(tmp_path / "run", metric=share) as run:
        assert run.finished


def test_a_metric_that_breaks_again_can_be_mended_again(tmp_path: Path) -> None:
    expected, _ = play(tiny(), metric=share)
    broken(tiny(), tmp_path / "run", "NaN", 10, metric=share)
    SWITCH.update(how="raises", round=1)
    told = "evaluation in round 10: KeyError: 'gone'; round 10 "
    with resume_run(tmp_path / "run", metric=share) as run, pytest.raises(RuleError, match=told):
        list(run)
    SWITCH.update(how="", round=0)
    with resume_run(tmp_path / "run", metric=share) as run:
        list(run)
        assert_identical(run.records, expected)


@pytest.mark.parametrize("options", [{}, {"matching": "priority"}], ids=["plain", "valued"])
def test_a_metric_that_breaks_on_samples_of_a_client_names_it(options: Any, tmp_path: Path) -> None:
    expected, _ = play(tiny(**options), metric=share)
    found = broken(tiny(**options), tmp_path / "run", "client", 20, metric=share)
    assert re.match(r"client \d in round [2-9]: KeyError: 'gone'; round \d of 12 is safe: ", found)
    with resume_run(tmp_path / "run", metric=share) as run:
        assert run.round > 0
        list(run)
        assert_identical(run.records, expected)


@pytest.mark.parametrize("statistics", ["averaged", "local"])
@pytest.mark.parametrize("how", ["raises", "shape"])
def test_a_module_that_breaks_in_an_evaluation_is_named(
    how: str, statistics: str, tmp_path: Path
) -> None:
    settings = own(statistics=statistics)
    expected, _ = play(settings, model=Counting())
    found = broken(settings, tmp_path / "run", how, 6, model=Counting())
    assert found.startswith("evaluation in round 6: ")
    with resume_run(tmp_path / "run", model=Counting()) as run:
        assert run.round == 5
        list(run)
        assert_identical(run.records, expected)


def test_a_federation_goes_on_after_an_evaluation_that_broke() -> None:
    expected, _ = play(own(), model=Counting())
    SWITCH.update(how="raises", round=12)
    records = []
    with Federation(own(), model=Counting()) as run:
        with pytest.raises(RuleError, match=r"^evaluation in round 12: Zero.* no more$"):
            records += [run.step() for _ in range(12)]
        SWITCH.update(how="", round=0)
        found = list(run)
    assert_identical(found, expected[-1:])


class Brittle(Rule):
    """Breaks in round 8, unless it is mended."""

    def apply(self, model: torch.Tensor, memory: Any, arrivals: Arrivals) -> tuple[Any, int]:
        for client in arrivals.clients:
            model.sub_(arrivals.updates[client], alpha=arrivals.client_lr / 4)
        if arrivals.round == 8 and SWITCH["how"]:
            raise KeyError("lost")
        return np.where(arrivals.delivered, arrivals.client_lr / 4, 0.0), 1


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"statistics": "local"}, Brittle()),
        ({}, Eager(rule=Brittle(), local_rounds=3)),
        ({"channels": "reactive", "channel_options": {"n_channels": 6}}, Brittle()),
    ],
    ids=["local", "eager", "reactive"],
)
def test_a_rule_that_breaks_loses_nothing_beside_what_clients_keep(
    options: Any, rule: Rule, tmp_path: Path
) -> None:
    things: Any = {"model": Counting(), "algorithm": rule}
    expected, _ = play(own(**options), **things)
    found = broken(own(**options), tmp_path / "run", "raises", -1, **things)
    assert "in round 8" in found
    assert "round 7 of 12 is safe" in found
    with resume_run(tmp_path / "run", **things) as run:
        assert run.round == 7
        list(run)
        assert_identical(run.records, expected)
