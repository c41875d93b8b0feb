"""Where the Bayes filter wins against detecting and restarting, and where it loses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from freshband.simulation import simulate
from tests.theory.margins import needs_compiler

pytestmark = needs_compiler


def regrets(channels: str, policies: list[str], clients: int, rounds: int, **options: Any) -> Any:
    result = simulate(
        channels, policies, clients=clients, rounds=rounds, runs=60, seed=11, points=1,
        channel_options=options, threads=1, progress=False,
    )  # fmt: skip
    return [result.regret.sel(policy=policy).values for policy in policies]


def errors_beyond(larger: Any, smaller: Any) -> float:
    """By how many standard errors, run by run, one is larger."""
    difference = larger - smaller
    return float(difference.mean() / (difference.std(ddof=1) / np.sqrt(len(difference))))


@pytest.mark.parametrize("hazard", [0.01, 0.04, 0.2])
def test_it_wins_where_channels_keep_switching(hazard: float) -> None:
    fresh, ours = regrets("fig3-extreme", ["glr-cucb:fresh", "bayes"], 4, 250, hazard=hazard)
    assert errors_beyond(fresh, ours) > 4
    assert ours.mean() < 0.8 * fresh.mean()


def test_it_wins_where_all_channels_switch_at_once() -> None:
    fresh, ours = regrets("fig3-piecewise", ["glr-cucb:fresh", "bayes"], 20, 250)
    assert errors_beyond(fresh, ours) > 10
    assert ours.mean() < 0.7 * fresh.mean()


def test_it_loses_where_nothing_ever_changes() -> None:
    thompson, ours = regrets("stationary", ["thompson", "bayes"], 2, 20_000)
    assert errors_beyond(ours, thompson) > 2


@pytest.mark.parametrize("hazard", [0.002, 0.01, 0.04, 0.2])
def test_it_closes_most_of_the_gap_from_random_to_knowing_the_means(hazard: float) -> None:
    policies = ["random", "bayes", "oracle:mean+age"]
    result = simulate(
        "fig3-extreme", policies, clients=4, rounds=250, runs=60, seed=11, points=1,
        channel_options={"hazard": hazard}, threads=1, progress=False,
    )  # fmt: skip
    random, ours, oracle = (
        result.cumulative_variance.sel(policy=policy).mean().item() for policy in policies
    )
    assert (random - ours) / (random - oracle) > 0.6
