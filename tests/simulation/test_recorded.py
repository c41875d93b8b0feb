"""Simulation of recorded states, whose means nobody knows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from freshband import simulate, summarise
from freshband.channels import Table
from freshband.errors import ParameterError
from tests.simulation.comparing import assert_same
from tests.simulation.refusing import refused


@pytest.fixture(scope="module")
def states() -> NDArray[np.uint8]:
    """A recording: 500 rounds of four channels, of which nobody knows the means."""
    return (np.random.default_rng(0).random((500, 4)) < [0.9, 0.7, 0.5, 0.2]).astype(np.uint8)


def test_recorded_states_have_a_regret_against_the_best_fixed_set(
    states: NDArray[np.uint8],
) -> None:
    policies = ["random", "cucb", "oracle:fixed", "oracle:csi"]
    result = simulate(Table(states=states), policies, rounds=500, runs=2)
    for name in ("regret", "regret_rotate", "detected", "missed", "false_alarms", "delay"):
        assert result[name].isnull().all()
    ages = result.age_curve
    np.testing.assert_array_equal(
        result.regret_fixed_curve, ages - ages.sel(policy="oracle:fixed", drop=True)
    )
    assert (result.regret_fixed.sel(policy="random") > 0).all()
    assert (result.regret_fixed.sel(policy="oracle:csi") < 0).all()
    rows = summarise(result)["policies"]
    for row in rows.values():
        assert row["regret"] is None
        assert row["regret_rotate"] is None
        assert set(row["regret_fixed"]) == {"mean", "se"}
    assert rows["oracle:fixed"]["regret_fixed"] == {"mean": 0, "se": 0}


def test_the_best_fixed_set_goes_by_realised_counts(states: NDArray[np.uint8]) -> None:
    best = np.argsort(-states.sum(axis=0))[:2]
    only = np.zeros_like(states)
    only[:, best] = states[:, best]
    kept, everything = (
        simulate(Table(states=each), "oracle:fixed", rounds=500, runs=1) for each in (only, states)
    )
    np.testing.assert_array_equal(kept.age_curve, everything.age_curve)


def test_recorded_links_that_differ_have_one_too() -> None:
    """Each client has a link that always works, and a better channel does not exist for both."""
    rng = np.random.default_rng(1)
    links = (rng.random((400, 2, 3)) < 0.3).astype(np.uint8)
    links[:, 0, 2] = links[:, 1, 0] = 1
    policies = ["random", "bayes", "oracle:fixed", "oracle:csi"]
    result = simulate(Table(states=links, per_client=True), policies, rounds=400, runs=2)
    assert result.regret.isnull().all()
    assert (result.mean_age.sel(policy="oracle:fixed") == 1).all()
    assert (result.regret_fixed.sel(policy="oracle:fixed") == 0).all()
    assert (
        result.regret_fixed.sel(policy="bayes") < result.regret_fixed.sel(policy="random")
    ).all()


def test_traces_of_states_come_the_same_way(states: NDArray[np.uint8], tmp_path: Path) -> None:
    np.savez(tmp_path / "air.npz", received=states, other=states[:5])
    result = simulate(
        "trace",
        "random,glr-cucb",
        rounds=500,
        runs=2,
        channel_options={"path": tmp_path / "air.npz", "key": "received"},
    )
    assert_same(result, simulate(Table(states=states), "random,glr-cucb", rounds=500, runs=2))
    config = json.loads(result.attrs["config"])
    assert config["channel_options"] == {"path": str(tmp_path / "air.npz"), "key": "received"}
    assert_same(simulate(**config), result)


def test_an_oracle_of_means_needs_means(states: NDArray[np.uint8]) -> None:
    for policy in ("oracle", "oracle:mean", "oracle+aa", "oracle:mean+rotate"):
        with refused(ParameterError, f"policy '{policy}' needs channel means".replace("+", r"\+")):
            simulate(Table(states=states), ["random", policy], rounds=10)
    simulate(Table(states=states), ["oracle:csi", "oracle:fixed"], rounds=10, runs=1)
