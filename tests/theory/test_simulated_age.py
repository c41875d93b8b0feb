"""The closed forms against the simulator (T1, T2)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from freshband.channels import Table
from freshband.simulation import simulate
from freshband.theory import constant_age, expected_age, mean_age_of_share
from tests.theory.margins import assert_mean, law_of_age, needs_compiler

pytestmark = needs_compiler

CROWD = 500  # clients, on as many channels of equal means: independent repetitions in one run
MEANS = [0.9, 0.1, 0.5, 0.0, 0.3, 0.7, 1.0, 0.2, 0.05, 0.05, 0.6, 0.4]


def ages_by_round(channels: Any, rounds: int, runs: int, **options: Any) -> Any:
    """Mean age of the crowd in each round, over all runs."""
    result = simulate(
        channels, "random", clients=CROWD, rounds=rounds, runs=runs, points=rounds, seed=1,
        threads=1, progress=False, **options,
    )  # fmt: skip
    curve = result.age_curve.sel(policy="random").sum("run").values
    return np.diff(curve, prepend=0) / (CROWD * runs)


def assert_round(found: float, means: list[float], n: int) -> None:
    """Hold the mean of n ages after these rounds against its law, within 5 sigma."""
    law = law_of_age(means)
    age = np.arange(1, len(law) + 1)
    expected = float(expected_age(means)[-1])
    margin = 5 * math.sqrt(max(0.0, law @ age**2 - expected**2) / n)
    assert margin < 0.1  # the literal value, one less, is far outside
    assert abs(found - expected) <= margin + 1e-12


def test_first_rounds_on_a_constant_channel() -> None:
    found = ages_by_round(
        "stationary", rounds=10, runs=40, channel_options={"means": [0.3] * CROWD}
    )
    for t in range(1, 11):
        assert_round(found[t - 1], [0.3] * t, 40 * CROWD)
    np.testing.assert_allclose(found, constant_age(0.3, np.arange(1, 11)), rtol=0.02)


def test_channels_of_any_means() -> None:
    air = Table(means=np.repeat(np.array(MEANS)[:, None], CROWD, axis=1))
    found = ages_by_round(air, rounds=len(MEANS), runs=40)
    for t in range(1, len(MEANS) + 1):
        assert_round(found[t - 1], MEANS[:t], 40 * CROWD)
    assert found[6] == 1  # mean 1: everybody is fresh


@pytest.mark.parametrize("mu", [0.2, 0.5, 0.9])
def test_long_run_on_a_constant_channel(mu: float) -> None:
    rounds = 2000
    result = simulate(
        "stationary", "random", clients=20, rounds=rounds, runs=30, seed=2, points=1, threads=1,
        progress=False, channel_options={"means": [mu] * 20},
    )  # fmt: skip
    ages = result.mean_age.values[0]
    assert_mean(ages, float(constant_age(mu, np.arange(1, rounds + 1)).mean()))
    assert ages.mean() == pytest.approx(float(constant_age(mu)), rel=0.01)


# -------------------------------------------------------------------------------------- lemma 1


def spread_under_random_service(n_clients: int, served: int, rounds: int) -> Any:
    """Exact mean of V_t/M, round by round, when any `served` of the clients get through.

    E[V/M] = E[a^2] - E[mean age^2]; the clients are not independent, because exactly so many are
    served: two of them both are with probability s(s-1)/(M(M-1)).
    """
    pairs = n_clients * (n_clients - 1)
    one = served / n_clients
    both = served * (served - 1) / pairs
    either = served * (n_clients - served) / pairs  # this one but not that one
    neither = 1 - both - 2 * either
    mean = square = product = 1.0  # E[a], E[a^2], E[a b]
    spread = []
    for _ in range(rounds):
        product = both + 2 * either * (mean + 1) + neither * (product + 2 * mean + 1)
        square = one + (1 - one) * (square + 2 * mean + 1)
        mean = one + (1 - one) * (mean + 1)
        level = (n_clients * square + pairs * product) / n_clients**2
        spread.append(square - level)
    return np.array(spread)


def test_random_and_oldest_first_service() -> None:
    rounds, clients, served = 4000, 20, 5
    result = simulate(
        "stationary", ["random", "oracle:mean+age"], clients=clients, rounds=rounds, runs=30,
        seed=3, points=1, threads=1, progress=False,
        channel_options={"means": [1.0] * served + [0.0] * (clients - served)},
    )  # fmt: skip
    by_lot = result.sel(policy="random")
    assert (by_lot.delivered == served * rounds).all()
    ages = float(constant_age(served / clients, np.arange(1, rounds + 1)).mean())
    assert_mean(by_lot.mean_age.values, ages)
    assert ages == pytest.approx(float(mean_age_of_share(clients, served)), rel=1e-3)  # 4, not 80
    spread = spread_under_random_service(clients, served, rounds)
    assert_mean(by_lot.cumulative_variance.values / rounds, spread.mean())
    assert spread[-1] == pytest.approx(11.84, rel=0.01)  # the prototype's figure; exactly 11.735

    queue = result.sel(policy="oracle:mean+age")
    early = 20 * 2.5 - (5 + 30) + 20 * 2.5 - (5 + 10 + 30)  # ages of the first two rounds, from 1
    assert (queue.mean_age * rounds * clients == 2.5 * rounds * clients - early).all()
    spread = (1.25 * (rounds - 2) + 0.1875 + 0.6875) / rounds
    np.testing.assert_allclose(queue.cumulative_variance / rounds, spread, rtol=1e-12)


def test_oldest_first_when_the_share_does_not_divide() -> None:
    clients, served, rounds = 20, 6, 300
    result = simulate(
        "stationary", "oracle:mean+age", clients=clients, rounds=rounds, runs=1, points=rounds,
        threads=1, progress=False, channel_options={"means": [1.0] * served + [0.0] * 14},
    )  # fmt: skip
    ages = np.diff(result.age_curve.values.ravel(), prepend=0)[10:]
    assert (ages == clients * float(mean_age_of_share(clients, served, "oldest"))).all()
