"""Reports of fleets: who was there is drawn again, and channels that were missing are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import freshband
from freshband.channels.base import build, open_air
from freshband.federated.settings import Training
from freshband.fleet.conditions import SimulatedFleet, open_conditions
from freshband.reporting import _fleet
from freshband.reporting._air import read_air
from freshband.reporting._fleet import describe_fleet, weigh_presence
from freshband.simulation.result import _read_config
from tests.reporting.pages import report_of
from tests.reporting.results import make_training


def simulate(**fleet: Any) -> Any:
    return freshband.simulate(
        "piecewise", "random", clients=3, rounds=90, runs=2, seed=5, points=9, fleet=fleet
    )


@pytest.mark.parametrize(
    "fleet",
    [
        {},
        {"weights": [1, 2, 4]},
        {"dead": [1], "weights": [1, 2, 4]},
        {"churn": 10, "dead": [0], "weights": [1, 2, 4]},
        {"churn": 10, "ack_loss": 0.5},
    ],
)
def test_presence_is_what_the_simulation_divided_by(fleet: dict[str, Any]) -> None:
    result = simulate(**fleet)
    present = weigh_presence(_read_config(result), result["round"].values, result.run.values)
    assert present is not None
    ages = (result.age_curve / present).isel(round=-1)
    np.testing.assert_allclose(ages.values, result.mean_age.values, rtol=1e-12)


def test_presence_is_counted_round_by_round(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = SimulatedFleet(churn=4.0, weights=(1.0, 2.0, 4.0))
    config = {"clients": 3, "seed": 7, **fleet.as_config()}
    rounds = np.arange(1, 31)
    whole = weigh_presence(config, rounds, np.array([3]))
    assert whole is not None
    here = open_conditions(fleet, 3, 5, seed=7, run=3).block(30).present
    assert np.diff(whole.values[0], prepend=0).tolist() == (here @ [1, 2, 4]).tolist()
    monkeypatch.setattr(_fleet, "_BLOCK", 7)
    again = weigh_presence(config, rounds, np.array([3]))
    assert again is not None
    assert again.equals(whole)


def test_missing_channels_are_bad_on_the_map() -> None:
    model, fleet = build("stationary", means=[1.0, 0.5]), SimulatedFleet(outages=5)
    fates = open_conditions(fleet, 2, 2, seed=1)
    air = read_air(model, 40, 1, 0, np.arange(41), None, fates)
    there = open_conditions(fleet, 2, 2, seed=1).block(40).available
    states = open_air(model, 40, 1).block(40).states
    assert air.shares.tolist() == (states * there).tolist()
    assert air.means is not None
    assert air.means.tolist() == ([1.0, 0.5] * there).tolist()
    assert 0 < there.sum() < there.size


def test_a_page_says_what_the_fleet_was(tmp_path: Path) -> None:
    page = report_of(simulate(churn=10, outages=10, weights=[1, 2, 4]), tmp_path)
    assert "seed 5; fleet: weights=[1, 2, 4], churn=10, outages=10" in page.text
    assert "Channels come and go: the channel map shows missing ones as bad." in page.text
    assert "Ages and regret are weighted by client." in page.text
    assert "Ages count only the clients that are there" in page.text
    assert "an oracle that learns at once who is there" in page.text
    assert "AoI regret, rotating oracle" not in page.text


def test_a_page_of_the_papers_problem_says_nothing_of_fleets(tmp_path: Path) -> None:
    page = report_of(simulate(), tmp_path)
    assert "fleet" not in page.text
    assert "AoI regret, rotating oracle" in page.text


def test_a_page_of_training_says_what_the_fleet_was(tmp_path: Path) -> None:
    late = Training(clients=3, rounds=4, device="cpu", fleet={"ack_delay": 1, "churn": 9})
    result = make_training(late)
    there = np.ones((4, 3), bool)
    there[2:, 1] = False
    guess = np.where(there, result.ages + 0.25, 99)  # what it takes absent clients for is no error
    both = result.ages.dims
    page = report_of(result.assign(present=(both, there), expected_ages=(both, guess)), tmp_path)
    assert "seed 0; fleet: ack_delay=1, churn=9" in page.text
    assert "Clients were there in 83% of their rounds" in page.text
    assert "The scheduler's were off by 0.25 rounds on average." in page.text


def test_a_page_leaves_out_what_takes_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_fleet, "MOST_DRAWN", 500)  # 90 rounds, 3 clients and 2 runs are 540
    assert "The age of the updates is left out" in report_of(simulate(churn=10), tmp_path).text
    assert "left out" not in report_of(simulate(dead=[1]), tmp_path).text


def test_a_fleet_is_described_in_one_line() -> None:
    assert describe_fleet({}) == ""
    told = describe_fleet({"fleet": {"tells": True, "churn": 1e3, "dead": list(range(7))}})
    assert told == "tells=true, churn=1000, dead=[0, 1, 2, …]"
