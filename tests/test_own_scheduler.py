"""A scheduler in one file works everywhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import Field
from typer.testing import CliRunner

import freshband
from freshband._policy import parse_policy
from freshband.channels import Stationary
from freshband.cli.app import app
from freshband.coordinator import Coordinator
from freshband.errors import UnknownNameError
from freshband.parameters import Parameters
from freshband.ranking import take_best
from freshband.schedulers.base import Matchings, Presets, means, score, select, update
from freshband.schedulers.base import registry as scheduler_registry
from tests import test_contract as contract
from tests import test_contract_parameters as parameters

# -------------------------------------------------------------------- a scheduler in one file


class LoyalState(NamedTuple):
    """How far each channel is trusted."""

    trust: NDArray[np.float64]  # (N,)
    patience: NDArray[np.float64]  # (1,)


@select.register(LoyalState)
def _select(scheduler: LoyalState, t: int, ages: Any, rng: Any, chosen: Any) -> None:
    take_best(scheduler.trust, t, chosen)


@score.register(LoyalState)
def _score(scheduler: LoyalState, t: int, scores: Any) -> None:
    for channel in range(scores.shape[1]):
        scores[0, channel] = scheduler.trust[channel]


@means.register(LoyalState)
def _means(scheduler: LoyalState, out: Any) -> None:
    for channel in range(len(out)):
        out[channel] = 0.5


@update.register(LoyalState)
def _update(scheduler: LoyalState, t: int, assignment: Any, outcome: Any, overridden: Any) -> int:
    for j in range(len(assignment)):
        if outcome[j] >= 0:
            step = 1.0 if outcome[j] == 1 else -scheduler.patience[0]
            scheduler.trust[assignment[j]] += step
    return -1


@final
class Loyal(Parameters):
    """Stays with channels that deliver [a test].

    Parameters
    ----------
    patience : float > 0, default 2
        Trust lost with an update.
    """

    presets: ClassVar[Presets] = {"hasty": {"patience": 50.0}}
    matchings: ClassVar[Matchings] = {"hasty": "rotate"}

    patience: float = Field(2.0, gt=0)

    def start(
        self, n_clients: int, n_channels: int, rng: np.random.Generator, horizon: int | None
    ) -> LoyalState:
        return LoyalState(np.zeros(n_channels), np.array([self.patience]))


@pytest.fixture
def _loyal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register a scheduler for one test only."""
    scheduler_registry.names()  # load before copying
    monkeypatch.setattr(scheduler_registry, "_things", dict(scheduler_registry._things))
    scheduler_registry.register("loyal")(Loyal)


@pytest.mark.usefixtures("_loyal")
def test_a_scheduler_of_ones_own_works_everywhere(tmp_path: Path) -> None:
    contract.test_fused_equals_stepwise_equals_plain_python("loyal", tmp_path)
    contract.test_a_saved_run_continues_identically("loyal", True, tmp_path)
    parameters.test_bad_hyper_parameters_are_refused_by_name("loyal", "patience")
    result = freshband.simulate(
        Stationary(means=[0.9, 0.1, 0.1, 0.1]), ["random", "loyal"], clients=1, rounds=300, runs=4
    )
    assert (result.mean_age.sel(policy="loyal") < result.mean_age.sel(policy="random")).all()
    assert parse_policy("loyal:hasty").matching_name == "rotate"
    assert Coordinator("loyal", 2, 5, options={"patience": 3}).policy.options == {"patience": 3}
    listed = CliRunner().invoke(app, ["list"]).stdout
    assert re.search(r"loyal +Stays with channels that deliver \[a test\]\.", listed)
    assert "loyal:hasty  patience=50.0" in CliRunner().invoke(app, ["list", "loyal"]).stdout
    with pytest.raises(UnknownNameError, match="did you mean 'loyal'"):
        Coordinator("loyel", 2, 5)
