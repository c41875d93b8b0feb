"""Lemma 1, Lemma 2 and the age under rotation, by other means (erratum E2, E4, E6)."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshband.aoi import ages_of
from freshband.errors import ParameterError
from freshband.theory import constant_age, expected_age, mean_age_of_share, rotation_age
from tests.theory.margins import law_of_age

mean = st.floats(0, 1)
good_mean = st.floats(0.05, 1)

# ---------------------------------------------------------------------------------------- lemma 2


@given(st.lists(mean, min_size=1, max_size=7))
def test_expected_age_is_the_mean_over_all_that_can_happen(means: list[float]) -> None:
    expected = np.zeros(len(means))
    for outcomes in itertools.product([0, 1], repeat=len(means)):
        chance = math.prod(m if x else 1 - m for m, x in zip(means, outcomes, strict=True))
        expected += chance * ages_of(np.array(outcomes)[:, None]).ravel()
    np.testing.assert_allclose(expected_age(means), expected, rtol=1e-12)


@given(st.lists(mean, min_size=1, max_size=12))
def test_literal_is_the_printed_series(means: list[float]) -> None:
    t = len(means)
    printed = sum(
        math.prod(1 - means[t - 1 - k] for k in range(tau + 1)) for tau in range(t)
    )  # rounds before the first one deliver nothing
    assert expected_age(means, "literal")[-1] == pytest.approx(printed, abs=1e-12)
    assert expected_age(means)[-1] == pytest.approx(printed + 1, abs=1e-12)


@given(mean, st.integers(1, 60), st.floats(1, 50))
def test_constant_age_is_the_recursion_in_closed_form(mu: float, t: int, start: float) -> None:
    by_rounds = expected_age([mu] * t, start=start)
    np.testing.assert_allclose(
        constant_age(mu, np.arange(1, t + 1), start=start), by_rounds, rtol=1e-9
    )
    assert float(constant_age(mu, 0, start=start)) == pytest.approx(start)


@pytest.mark.parametrize(
    ("mu", "corrected", "literal"), [(0.2, 5, 4), (0.5, 2, 1), (0.9, 1 / 0.9, 0.1 / 0.9)]
)
def test_long_run_values_of_e2(mu: float, corrected: float, literal: float) -> None:
    assert float(constant_age(mu)) == pytest.approx(corrected, rel=1e-12)
    assert float(constant_age(mu, variant="literal")) == pytest.approx(literal, rel=1e-12)
    assert float(constant_age(mu, 10_000)) == pytest.approx(corrected, rel=1e-12)
    assert expected_age([mu] * 400)[-1] == pytest.approx(corrected, rel=1e-12)
    assert expected_age([mu] * 400, "literal")[-1] == pytest.approx(literal, rel=1e-12)


def test_finite_values_of_e2() -> None:
    assert constant_age(0.3, [1, 3, 10]).round(3).tolist() == [1.7, 2.533, 3.267]
    assert constant_age(0.3, [1, 3, 10], "literal").round(3).tolist() == [0.7, 1.533, 2.267]


def test_channels_that_never_and_always_deliver() -> None:
    assert constant_age([0, 1]).tolist() == [math.inf, 1]
    assert constant_age([[0], [1]], [0, 1, 5]).tolist() == [[1, 2, 6], [1, 1, 1]]
    assert constant_age(1, [0, 1], start=4).tolist() == [4, 1]
    assert expected_age([0, 0, 1, 0]).tolist() == [2, 3, 1, 2]


def test_a_tiny_mean_loses_no_digits() -> None:
    t = 1000.0
    mu = 1e-14  # E[a] = sum of (1-mu)^k over k <= t; (1 - (1-mu)^(t+1))/mu would be off by 1 %
    assert float(constant_age(mu, t)) == pytest.approx(t + 1 - mu * t * (t + 1) / 2, rel=1e-12)


def test_clients_are_further_axes() -> None:
    means = np.random.default_rng(0).random((9, 4, 3))
    ages = expected_age(means)
    assert ages.shape == (9, 4, 3)
    np.testing.assert_allclose(ages[:, 2, 1], expected_age(means[:, 2, 1]), rtol=1e-15)
    assert expected_age(np.zeros((0, 3))).shape == (0, 3)


@given(st.lists(mean, max_size=12))
def test_the_law_used_by_the_simulated_tests(means: list[float]) -> None:
    law = law_of_age(means)
    assert law.sum() == pytest.approx(1)
    if means:
        assert law @ np.arange(1, len(law) + 1) == pytest.approx(expected_age(means)[-1])


# --------------------------------------------------------------------------------------- rotation


@given(st.lists(good_mean, min_size=1, max_size=6))
def test_rotation_is_the_limit_of_the_recursion(means: list[float]) -> None:
    cycles = 700 // len(means)  # (1 - 0.05)^700 is nothing
    last = expected_age(means * cycles)[-len(means) :]
    np.testing.assert_allclose(rotation_age(means, by_phase=True), last, rtol=1e-9)
    assert float(rotation_age(means)) == pytest.approx(last.mean())


@pytest.mark.parametrize(
    ("means", "total"),
    [((0.9, 0.5), 2.7368), ((0.9, 0.1), 3.2967), ((0.6, 0.5), 3.6250), ((0.8, 0.3), 3.3721)],
)
def test_rotation_figures_of_e6(means: tuple[float, float], total: float) -> None:
    assert 2 * float(rotation_age(means)) == pytest.approx(total, abs=5e-5)


def test_rotation_of_equal_channels_is_no_rotation() -> None:
    np.testing.assert_allclose(rotation_age([0.4] * 5, by_phase=True), 1 / 0.4, rtol=1e-12)


def test_the_order_of_four_turns_matters_but_not_where_the_cycle_begins_or_its_sense() -> None:
    sorted_best_first = float(rotation_age([0.9, 0.7, 0.5, 0.1]))
    assert float(rotation_age([0.9, 0.1, 0.7, 0.5])) < sorted_best_first - 1e-3
    assert float(rotation_age([0.1, 0.9, 0.7, 0.5])) == pytest.approx(sorted_best_first)
    assert float(rotation_age([0.1, 0.5, 0.7, 0.9])) == pytest.approx(sorted_best_first)


def test_rotation_over_leading_axes() -> None:
    means = np.random.default_rng(1).uniform(0.1, 0.9, (2, 3, 4))
    phases = rotation_age(means, by_phase=True)
    assert phases.shape == (2, 3, 4)
    np.testing.assert_allclose(phases[1, 2], rotation_age(means[1, 2], by_phase=True), rtol=1e-14)
    np.testing.assert_allclose(rotation_age(means), phases.mean(axis=-1), rtol=1e-14)


def test_rotation_with_dead_channels() -> None:
    assert rotation_age([0, 1, 0], by_phase=True).tolist() == [3, 1, 2]
    assert float(rotation_age([0, 0])) == math.inf


# ---------------------------------------------------------------------------------------- lemma 1


def test_lemma_1_figures_of_e4() -> None:
    assert float(mean_age_of_share(20, 5)) == 4
    assert float(mean_age_of_share(20, 5, "oldest")) == 2.5
    assert float(mean_age_of_share(20, 5, variant="literal")) == 80  # the sum, not the mean
    np.testing.assert_array_equal(mean_age_of_share([[4], [12]], [1, 2, 4]).tolist(),
                                  [[4, 2, 1], [12, 6, 3]])  # fmt: skip


@given(st.integers(1, 40), st.data())
def test_oldest_first_is_a_queue(n_clients: int, data: Any) -> None:
    served = data.draw(st.integers(1, n_clients))
    ages = [1] * n_clients
    for _ in range(n_clients + 1):
        ages.sort(reverse=True)
        ages = [1] * served + [age + 1 for age in ages[served:]]
    mean_age = float(mean_age_of_share(n_clients, served, "oldest"))
    assert mean_age == pytest.approx(sum(ages) / n_clients, rel=1e-12)
    if n_clients % served == 0:
        assert mean_age == pytest.approx((n_clients / served + 1) / 2)
    assert mean_age <= float(mean_age_of_share(n_clients, served))


# -------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: expected_age(0.5), r"means must have the shape \(rounds, ...\), got a single"),
        (lambda: expected_age([0.5, 1.2]), r"means must be numbers in \[0, 1\], got 1.2"),
        (lambda: expected_age([math.nan]), r"means must be numbers in \[0, 1\], got nan"),
        (lambda: expected_age([[0.5], [0.5, 0.1]]), r"means must be numbers in \[0, 1\], got \["),
        (lambda: expected_age(["a"]), r"means must be numbers in \[0, 1\], got \['a'\]"),
        (lambda: expected_age([True]), r"means must be numbers in \[0, 1\], got \[True\]"),
        (lambda: expected_age([0.5], start=0.5), "start must be a finite number >= 1, got 0.5"),
        (lambda: expected_age([0.5], start=math.inf), "start must be a finite number >= 1, got i"),
        (lambda: expected_age([0.5], start="1"), "start must be a finite number >= 1, got '1'"),
        (lambda: expected_age([0.5], "literal", start=2), "start must be 1 with variant='lit"),
        (lambda: expected_age([0.5], "paper"), "variant must be 'corrected' or 'literal', got"),
        (lambda: constant_age(-0.1), r"mean must be numbers in \[0, 1\], got -0.1"),
        (lambda: constant_age(0.1, -1), "t must be whole numbers >= 0, got -1.0"),
        (lambda: constant_age(0.1, 1.5), "t must be whole numbers >= 0, got 1.5"),
        (lambda: constant_age(0.1, math.inf), "t must be whole numbers >= 0, got inf"),
        (lambda: rotation_age(0.5), r"means must have the shape \(..., M\), M >= 1, got \(\)"),
        (lambda: rotation_age([]), r"means must have the shape \(..., M\), M >= 1, got \(0,\)"),
        (lambda: rotation_age([2]), r"means must be numbers in \[0, 1\], got 2.0"),
        (lambda: mean_age_of_share(3, 4), "served must be at most n_clients = 3, got 4"),
        (lambda: mean_age_of_share([9, 3], 4), "served must be at most n_clients = 3, got 4"),
        (lambda: mean_age_of_share(3, 0), "served must be whole numbers >= 1, got 0"),
        (lambda: mean_age_of_share(0, 1), "n_clients must be whole numbers >= 1, got 0"),
        (lambda: mean_age_of_share(3, 1, "newest"), "service must be 'random' or 'oldest', got"),
        (lambda: mean_age_of_share(3, 1, "oldest", "literal"), "'literal' needs service='random'"),
    ],
)
def test_bad_input(call: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        call()
