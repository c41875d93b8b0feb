"""Lemmas 3 and 4 and Theorem 5 (E14): exact chains of ages, and a simulated comparison."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshband.errors import ParameterError
from freshband.theory import (
    age_cutoff,
    age_sum_bound,
    ahead_weight,
    constant_age,
    expected_age,
    glr_cucb_bound,
    rotation_age,
    smallest_gap,
    wrong_rounds,
)


def age_dependent(rounds: int, right: float, wrong: float, at: int) -> tuple[float, float]:
    """Sum of expected ages and expected wrong rounds of one client that errs at ages >= ``at``."""
    law = np.zeros(rounds + 2)
    law[1] = 1.0
    ages = np.arange(rounds + 2)
    means = np.where(ages >= at, wrong, right)
    total = missed = 0.0
    for _ in range(rounds):
        missed += law[ages >= at].sum()
        success = law @ means
        law = np.concatenate([[0.0, success], (law * (1 - means))[1:-1]])
        total += law @ ages
    return float(total), float(missed)


@pytest.mark.parametrize("at", [1, 2, 5, 15, 40])
@pytest.mark.parametrize(("right", "wrong"), [(0.9, 0.1), (0.5, 0.4), (0.3, 0.05)])
def test_lemma_3_where_a_policy_errs_when_it_is_old(right: float, wrong: float, at: int) -> None:
    rounds = 800
    total, missed = age_dependent(rounds, right, wrong, at)
    bound = float(age_sum_bound([right], rounds, missed, worst=wrong).value)
    assert total <= bound


def test_lemma_3_terms() -> None:
    rounds, low = 1000, 0.3
    n = float(age_cutoff(rounds, low))
    ahead = 1.5789473684
    value = age_sum_bound([0.9, 0.5], rounds, [0, 20], worst=low).value
    turns = rounds * float(rotation_age([0.9, 0.5]))
    np.testing.assert_allclose(
        value, turns + ahead * 0.6 * (n * np.array([0, 20]) + 1 / low), rtol=1e-9
    )


@pytest.mark.parametrize("means", [[0.9, 0.5, 0.2], [0.9, 0.2, 0.5], [0.3, 0.7, 0.9, 0.4]])
def test_lemma_3_weighs_an_age_by_what_follows(means: list[float]) -> None:
    """Turns go forwards from the wrong round on, not backwards."""
    values = age_sum_bound(means, 1000, [0, 1], worst=0.2).value
    ahead = ahead_weight(np.resize(means, 400))[: len(means)].max()
    n = float(age_cutoff(1000, 0.2))
    assert float(np.diff(values)[0]) == pytest.approx(ahead * (0.9 - 0.2) * n, rel=1e-9)


def test_lemma_3_without_a_wrong_round_is_the_benchmark() -> None:
    """Up to a constant: the sum over turns, from age 1."""
    mu, rounds = [0.7, 0.4, 0.2], 999
    exact = float(expected_age(np.resize(mu, rounds)).sum())
    bound = float(age_sum_bound(mu, rounds, 0, worst=0.2).value)
    assert exact <= bound <= exact + 60


def test_literal_lemma_3_loses_one_a_round() -> None:
    """Erratum E2 in Q: without wrong rounds, the printed bound is below the true sum."""
    mu, rounds = 0.8, 10_000
    exact = float(constant_age(mu, np.arange(1, rounds + 1)).sum())
    literal = float(age_sum_bound([mu], rounds, 0, worst=mu, variant="literal").value)
    assert literal < 0.3 * exact
    assert exact <= float(age_sum_bound([mu], rounds, 0, worst=mu).value)
    window = math.log(rounds) / -math.log(0.2)
    q = sum(0.2 ** (tau + 1) for tau in range(int(window) + 1)) * (rounds - window)
    assert literal == pytest.approx(q + (window + 1) / mu)


@given(
    st.lists(st.sampled_from([0.1, 0.3, 0.4, 0.7, 0.75]), min_size=1, max_size=6), st.integers(1, 6)
)
def test_smallest_gap_over_all_sets(means: list[float], clients: int) -> None:
    clients = min(clients, len(means))
    sums = [sum(each) for each in itertools.combinations(means, clients)]
    worse = [max(sums) - s for s in sums if max(sums) - s > 1e-9]
    expected = min(worse, default=math.inf)
    assert float(smallest_gap(means, clients)) == pytest.approx(expected)
    assert float(smallest_gap(means, clients, "literal")) == 0


def test_lemma_4() -> None:
    order = math.sqrt(5 * 20_000 * math.log(20_000))
    assert float(wrong_rounds(5, 20_000, 6, variant="literal").value) == pytest.approx(6 * order)
    known = wrong_rounds(5, 20_000, 6, known=True, variant="literal")
    assert float(known.value) == pytest.approx(math.sqrt(6) * order)
    value = wrong_rounds(5, 10**8, 6, known=True, gap=[0.5, 0.1], constant=2).value
    np.testing.assert_allclose(value, 2 * math.sqrt(6 * 5e8 * math.log(1e8)) / np.array([0.5, 0.1]))
    full = wrong_rounds(5, 1000, 6, gap=0.1)
    assert float(full.value) == 1000  # there are no more rounds than that
    assert full.failing == ["constant is known"]


def test_theorem_5() -> None:
    order = math.sqrt(5 * 20_000 * math.log(20_000) ** 3)
    literal = glr_cucb_bound(2, 5, 20_000, 6, "literal")
    assert float(literal.value) == pytest.approx(12 * order)
    assert not literal.holds  # an order, whose constant nobody knows
    told = glr_cucb_bound(2, 5, 20_000, 6, "literal", known=True)
    assert float(told.value) == pytest.approx(2 * math.sqrt(6) * order)
    measured = glr_cucb_bound(2, 5, 20_000, 6, worst=0.3, best=0.6, wrong=2000)
    assert float(measured.value) == pytest.approx(0.7 / 0.6 * (28 * 2000 + 2 / 0.3))
    assert measured.holds
    guessed = glr_cucb_bound(2, 5, 20_000, 6, worst=0.3, best=0.6, gap=0.1)
    assert guessed.failing == ["constant is known", "same order as the oracle within the set"]
    assert float(guessed.value) == pytest.approx(0.7 / 0.6 * (28 * 40_000 + 2 / 0.3))


@pytest.mark.parametrize("at", [1, 3, 12])
def test_theorem_5_where_a_policy_errs_when_it_is_old(at: int) -> None:
    """One client, two segments whose best channels differ; exact."""
    rounds = 600
    regret = missed = 0.0
    for right, wrong in ((0.8, 0.2), (0.5, 0.3)):
        total, count = age_dependent(rounds, right, wrong, at)
        regret += total - float(constant_age(right, np.arange(1, rounds + 1)).sum())
        missed += count
    bound = glr_cucb_bound(1, 2, 2 * rounds, 2, worst=0.2, best=0.5, wrong=missed)
    assert regret <= float(bound.value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: age_sum_bound(0.5, 10, 0, worst=0.1), r"best_means must have the shape"),
        (lambda: age_sum_bound([0.5], 10, 0, worst=0.6), "worst must be at most the least of"),
        (lambda: age_sum_bound([0.5], 10, -1, worst=0.1), "wrong must be finite numbers >= 0"),
        (lambda: smallest_gap([0.5], 2), r"means must have the shape \(..., N\), N >= 2"),
        (lambda: wrong_rounds(5, 100, 2), "gap must be given"),
        (lambda: wrong_rounds(5, 100, 2, gap=0), "gap must be finite numbers > 0"),
        (lambda: glr_cucb_bound(2, 5, 100, 2), "worst and best must be given"),
        (lambda: glr_cucb_bound(2, 1, 100, 2), "n_clients must be at most n_channels = 1"),
    ],
)
def test_bad_input(call: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        call()
