"""Age matching attains the exact optimum for two clients, rotation does not (erratum E6, T3)."""

from __future__ import annotations

import numpy as np
import pytest

from freshband.simulation import simulate
from freshband.theory import constant_age, rotation_age
from tests.reference import mdp
from tests.theory.margins import assert_mean, needs_compiler, standard_error

#        means of the two channels, and the sum of ages per round: optimal, rotating, fixed
CASES = [
    ((0.9, 0.5), 2.690058, 2.7368, 3.1111),
    ((0.9, 0.1), 3.199023, 3.2967, 11.1111),
    ((0.6, 0.5), 3.541667, 3.6250, 3.6667),
    ((0.8, 0.3), 3.226744, 3.3721, 4.5833),
]
CAP = 80
DEEP = 260  # for the fixed rule, under which one client waits long


@pytest.mark.parametrize(("means", "optimum", "rotating", "fixed"), CASES)
def test_exact_values(
    means: tuple[float, float], optimum: float, rotating: float, fixed: float
) -> None:
    best = mdp.solve([means, means], CAP)
    assert best.high - best.low < 1e-8
    assert best.low == pytest.approx(optimum, abs=6e-7)
    by_age = mdp.evaluate([means, means], mdp.age_sorted(CAP))
    assert by_age[0] == pytest.approx(best.low, abs=2e-9)

    turns = mdp.evaluate([means, means], mdp.taking_turns(CAP))
    assert turns[0] == pytest.approx(rotating, abs=6e-5)
    assert turns[0] == pytest.approx(2 * float(rotation_age(means)), abs=1e-8)
    stuck = mdp.evaluate([means, means], mdp.never_changing(DEEP))
    assert stuck[0] == pytest.approx(fixed, abs=6e-5)
    assert stuck[0] == pytest.approx(float(constant_age(means).sum()), abs=1e-8)


@pytest.mark.parametrize("means", [case[0] for case in CASES])
def test_the_older_client_should_get_the_better_channel_in_every_state(
    means: tuple[float, float],
) -> None:
    straight, crossed = mdp.solve([means, means], CAP).ahead[:, :40, :40]  # away from the cut-off
    gain = crossed - straight
    age = np.arange(40)
    first_is_older = age[:, None] > age[None, :]
    assert (gain[first_is_older] > 1e-3).all()
    assert (gain[first_is_older.T] < -1e-3).all()
    np.testing.assert_allclose(np.diag(gain), 0, atol=1e-7)


@needs_compiler
@pytest.mark.parametrize(("means", "optimum", "rotating", "fixed"), CASES)
def test_simulated_values(
    means: tuple[float, float], optimum: float, rotating: float, fixed: float
) -> None:
    result = simulate(
        "stationary", ["oracle:mean+age", "oracle:mean+rotate"], clients=2, rounds=20_000, runs=60,
        seed=4, points=1, threads=1, progress=False, channel_options={"means": means},
    )  # fmt: skip
    ages = 2 * result.mean_age
    by_age, turns = ages.sel(policy="oracle:mean+age"), ages.sel(policy="oracle:mean+rotate")
    assert_mean(by_age, optimum)
    assert_mean(turns, rotating)
    # and the margins can tell them apart
    assert 10 * standard_error(by_age) < rotating - optimum
    assert 10 * standard_error(turns) < rotating - optimum


@needs_compiler
def test_rotation_of_four_clients_goes_from_best_to_worst() -> None:
    means = [0.2, 0.9, 0.5, 0.1, 0.7, 0.15]
    result = simulate(
        "stationary", ["oracle:mean+rotate"], clients=4, rounds=20_000, runs=30, seed=5, points=1,
        threads=1, progress=False, channel_options={"means": means},
    )  # fmt: skip
    ages = result.mean_age.values[0]
    assert_mean(ages, float(rotation_age([0.9, 0.7, 0.5, 0.2])))
    shuffled = float(rotation_age([0.9, 0.5, 0.7, 0.2]))
    assert abs(ages.mean() - shuffled) > 5 * standard_error(ages)  # another order would not do
