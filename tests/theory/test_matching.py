"""Matching by age: best for one round always, and for ever with two clients (E6)."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshband.errors import ParameterError
from freshband.theory import age_sorted, next_age_sum, rotation_age, two_client_optimum
from tests.reference import mdp


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.lists(st.floats(0, 1), min_size=4, max_size=5),
)
def test_no_assignment_is_better_for_one_round(ages: list[int], means: list[float]) -> None:
    best = float(next_age_sum(ages, means))
    sums = []
    for channels in itertools.permutations(range(len(means)), len(ages)):
        sums.append(
            len(ages) + sum((1 - means[k]) * a for a, k in zip(ages, channels, strict=True))
        )
        assert float(next_age_sum(ages, means, channels)) == pytest.approx(sums[-1])
    assert best == pytest.approx(min(sums))
    chosen = age_sorted(ages, means).tolist()
    assert len(set(chosen)) == len(ages)


def test_many_rounds_at_once() -> None:
    rng = np.random.default_rng(0)
    ages, means = rng.integers(1, 9, (6, 1, 3)), rng.random((4, 5))
    together = next_age_sum(ages, means)
    assert together.shape == (6, 4)
    for i, j in itertools.product(range(6), range(4)):
        assert together[i, j] == pytest.approx(float(next_age_sum(ages[i, 0], means[j])))


CASES = {(0.9, 0.5): 2.690058, (0.9, 0.1): 3.199023, (0.6, 0.5): 3.541667, (0.8, 0.3): 3.226744}


def test_two_clients_for_ever() -> None:
    best = two_client_optimum(list(CASES))
    np.testing.assert_allclose(best.low, list(CASES.values()), atol=6e-7)
    assert (best.high - best.low < 1e-9).all()
    age = np.arange(40)
    older = age[:, None] > age
    for cost in best.crossing_cost[:, :40, :40]:  # away from where ages are cut off
        assert (cost[older] > 1e-3).all()
        assert (cost[older.T] < -1e-3).all()
        np.testing.assert_allclose(np.diag(cost), 0, atol=1e-7)
    turns = [2 * float(rotation_age(means)) for means in CASES]
    assert (best.high < np.array(turns) - 0.04).all()


@pytest.mark.parametrize("means", list(CASES))
def test_optimum_is_that_of_the_slow_version(means: tuple[float, float]) -> None:
    slow, fast = mdp.solve([means, means], 40), two_client_optimum(means, cap=40)
    assert float(fast.low) == pytest.approx(slow.low, abs=1e-8)
    np.testing.assert_allclose(fast.crossing_cost, slow.ahead[1] - slow.ahead[0], atol=1e-6)
    swapped = two_client_optimum(means[::-1], cap=40)
    assert float(swapped.low) == float(fast.low)


def test_where_ages_are_cut_off_does_not_matter() -> None:
    for means in ([0.3, 0.2], [0.6, 0.0], [1.0, 0.4]):
        first = two_client_optimum(means)
        second = two_client_optimum(means, cap=2 * first.crossing_cost.shape[-1])
        assert float(first.low) == pytest.approx(float(second.low), abs=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: age_sorted([1, 2, 3], [0.5, 0.5]), r"shapes \(..., M\) and \(..., N\), 1 <= M"),
        (lambda: age_sorted([-1], [0.5]), "ages must be finite numbers >= 0, got -1"),
        (
            lambda: next_age_sum([1, 2], [0.5, 0.5], [0, 2]),
            r"assignment must be channels in \[0, 1",
        ),
        (
            lambda: next_age_sum([1, 2], [0.5, 0.5], [0]),
            "assignment must be a channel for each of 2",
        ),
        (lambda: two_client_optimum([0.5]), "means must be pairs, not both 0"),
        (lambda: two_client_optimum([0, 0]), "means must be pairs, not both 0"),
        (lambda: two_client_optimum([0.01, 0]), "means must have a better one >= 0.05, or cap"),
        (lambda: two_client_optimum([0.5, 0.5], cap=1), "cap must be a whole number >= 2"),
        (lambda: two_client_optimum([0.5, 0.5], precision=0), "precision must be a number > 0"),
    ],
)
def test_bad_input(call: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        call()
