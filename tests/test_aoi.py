from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from freshband.aoi import (
    age_variance,
    ages_of,
    growth_exponent,
    jain_index,
    match_alarms,
)
from freshband.errors import ParameterError

# ------------------------------------------------------------------------------------------- ages


def ages_by_hand(delivered: Any) -> list[list[int]]:
    """Equation (8), client by client: a(0) = 1, then 1 after a success, else one more."""
    ages = [1] * len(delivered[0])
    rows = []
    for row in delivered:
        ages = [1 if got == 1 else age + 1 for got, age in zip(row, ages, strict=True)]
        rows.append(ages)
    return rows


def ages_since_last_success(delivered: Any) -> list[list[int]]:
    """Equation (4), a(t) = t - h(t): h is the last success before t, round 0 counting as one."""
    rows = []
    for t in range(1, len(delivered) + 1):
        row = []
        for client in range(len(delivered[0])):
            heard = [h for h in range(1, t) if delivered[h - 1][client] == 1]
            row.append(t - max(heard, default=0))
        rows.append(row)
    return rows


deliveries = hnp.arrays(
    np.int8,
    hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=30),
    elements=st.integers(-1, 1),
)


@given(deliveries)
def test_ages_follow_equation_8(delivered: Any) -> None:
    ages = ages_of(delivered)
    assert ages.dtype == np.int64
    assert ages.tolist() == ages_by_hand(delivered.tolist())


@given(deliveries)
def test_ages_follow_equation_4(delivered: Any) -> None:
    ages = ages_of(delivered, clock="pre")
    assert ages.dtype == np.int64
    assert ages.tolist() == ages_since_last_success(delivered.tolist())


@given(deliveries)
def test_one_clock_shows_what_the_other_showed_a_round_before(delivered: Any) -> None:
    post, pre = ages_of(delivered), ages_of(delivered, clock="pre")
    assert (pre[1:] == post[:-1]).all()
    assert (pre[0] == 1).all()  # a(0) of equation (8)


def test_clocks_differ_where_it_matters() -> None:
    delivered = [[True], [False], [False], [True]]
    assert ages_of(delivered).ravel().tolist() == [1, 2, 3, 1]
    assert ages_of(delivered, clock="pre").ravel().tolist() == [1, 1, 2, 3]


def test_no_rounds_have_no_ages() -> None:
    nothing = np.zeros((0, 3), np.int8)
    assert ages_of(nothing).shape == (0, 3)
    assert ages_of(nothing, clock="pre").shape == (0, 3)


def test_bad_ages() -> None:
    with pytest.raises(ParameterError, match=r"delivered must have the shape .*, got \(3,\)"):
        ages_of([1, 0, 1])
    with pytest.raises(ParameterError, match="clock must be 'post' or 'pre', got 'now'"):
        ages_of([[1]], clock="now")  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------- variance

some_ages = hnp.arrays(
    np.int64,
    hnp.array_shapes(min_dims=1, max_dims=3, min_side=2, max_side=8),
    elements=st.integers(1, 1000),
)


def spread_by_hand(ages: list[int]) -> Fraction:
    mean = Fraction(sum(ages), len(ages))
    return sum(((age - mean) ** 2 for age in ages), Fraction(0))


@given(some_ages)
def test_variance_forms(ages: Any) -> None:
    n_clients = ages.shape[-1]
    rows = ages.reshape(-1, n_clients).tolist()
    total = np.array([float(spread_by_hand(row)) for row in rows]).reshape(ages.shape[:-1])
    for form, divisor in [("sum", 1), ("per_client", n_clients), ("sample", n_clients - 1)]:
        found = age_variance(ages, form)  # type: ignore[arg-type]
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, total / divisor, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(age_variance(ages), age_variance(ages, "per_client"))


@given(some_ages, st.integers(0, 100))
def test_variance_knows_no_level_and_no_order(ages: Any, shift: int) -> None:
    assert age_variance(ages + shift) == pytest.approx(age_variance(ages), abs=1e-6)
    assert age_variance(ages[..., ::-1]) == pytest.approx(age_variance(ages), abs=1e-6)


def test_variance_of_one_client() -> None:
    assert age_variance([[5], [7]]).tolist() == [0, 0]
    with pytest.raises(ParameterError, match="form='sample' needs at least 2 clients, got 1"):
        age_variance([5], form="sample")


def test_bad_variance_form() -> None:
    with pytest.raises(ParameterError, match=r"form must be one of .*'sum'.*, got 'total'"):
        age_variance([1, 2], form="total")  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------- fairness

shares = hnp.arrays(
    np.int64,
    hnp.array_shapes(min_dims=1, max_dims=2, min_side=1, max_side=12),
    elements=st.integers(0, 10_000),
)


def jain_by_hand(x: list[int]) -> Fraction:
    squares = sum(value**2 for value in x)
    return Fraction(sum(x) ** 2, len(x) * squares) if squares else Fraction(1)


@given(shares)
def test_jain_index(x: Any) -> None:
    rows = x.reshape(-1, x.shape[-1]).tolist()
    expected = np.array([float(jain_by_hand(row)) for row in rows]).reshape(x.shape[:-1])
    np.testing.assert_allclose(jain_index(x), expected, rtol=1e-12)


@given(shares, st.integers(1, 1000))
def test_jain_index_has_no_unit_and_stays_in_range(x: Any, unit: int) -> None:
    index = jain_index(x)
    assert (index <= 1 + 1e-12).all()
    assert (index >= 1 / x.shape[-1] - 1e-12).all()
    np.testing.assert_allclose(jain_index(x * unit), index, rtol=1e-12)


@pytest.mark.parametrize("served", range(1, 6))
def test_jain_index_is_the_share_of_those_served_alike(served: int) -> None:
    assert float(jain_index([7] * served + [0] * (5 - served))) == pytest.approx(served / 5)


def test_nothing_shared_is_equal() -> None:
    assert jain_index([[0, 0], [1, 0]]).tolist() == [1, 0.5]


# ----------------------------------------------------------------------------------------- growth


@given(
    st.floats(-1, 2),
    st.floats(0.01, 1e6),
    st.lists(st.integers(1, 10**7), min_size=2, max_size=12, unique=True),
)
def test_growth_exponent_of_a_power(exponent: float, factor: float, rounds: list[int]) -> None:
    regret = [factor * t**exponent for t in rounds]
    # neighbours like 10^7 and 10^7 - 1 leave a digit or two less
    spread = math.log(max(rounds) / min(rounds))
    assert growth_exponent(rounds, regret) == pytest.approx(exponent, abs=1e-9 + 1e-12 / spread)


@given(
    st.lists(
        st.tuples(st.integers(1, 10**6), st.floats(0.001, 1e6)),
        min_size=2,
        max_size=12,
        unique_by=lambda pair: pair[0],
    )
)
def test_growth_exponent_is_the_least_squares_slope(pairs: list[tuple[int, float]]) -> None:
    rounds, regret = zip(*pairs, strict=True)
    x, y = np.log(rounds), np.log(regret)
    normal = np.stack([x, np.ones_like(x)], axis=1)
    slope = np.linalg.lstsq(normal, y, rcond=None)[0][0]
    tolerance = 1e-7 / (np.ptp(x) or 1)
    assert growth_exponent(rounds, regret) == pytest.approx(slope, rel=1e-6, abs=tolerance)


def test_growth_exponent_skips_what_has_no_logarithm() -> None:
    assert growth_exponent([0, 10, 20, 40, 80], [3, -5, 2, 4, 0]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("rounds", "regret"), [([], []), ([10], [5]), ([10, 20], [5, -5]), ([0, 20], [5, 5])]
)
def test_growth_exponent_needs_two_points(rounds: list[int], regret: list[int]) -> None:
    assert math.isnan(growth_exponent(rounds, regret))


def test_growth_exponent_needs_two_different_rounds() -> None:
    assert math.isnan(growth_exponent([10, 10], [5, 6]))


# ----------------------------------------------------------------------------------------- alarms


def match_by_hand(alarms: list[int], changes: list[int]) -> tuple[int, int, int, list[int]]:
    """Walk through time with an open change: the first alarm closes it, every other is false."""
    detected = missed = false = 0
    delays = []
    pending: int | None = None
    for t in range(1, 61):
        if t in changes:  # a change begins before the alarm of the same round is raised
            missed += pending is not None
            pending = t
        if t in alarms:
            if pending is None:
                false += 1
            else:
                detected += 1
                delays.append(t - pending)
                pending = None
    return detected, missed + (pending is not None), false, delays


rounds_in_time = st.sets(st.integers(1, 60), max_size=20).map(sorted)


@given(rounds_in_time, rounds_in_time)
def test_alarms_are_matched_in_time(alarms: list[int], changes: list[int]) -> None:
    detected, missed, false, delays = match_by_hand(alarms, changes)
    found = match_alarms(alarms, changes)
    assert found[:3] == (detected, missed, false)
    if delays:
        assert found.delay == pytest.approx(sum(delays) / len(delays))
    else:
        assert math.isnan(found.delay)
    assert found.detected + found.missed == len(changes)
    assert found.detected + found.false == len(alarms)


def test_an_alarm_in_the_round_of_the_change_is_not_early() -> None:
    assert match_alarms([100], [100]) == (1, 0, 0, 0.0)
    assert match_alarms([99], [100])[:3] == (0, 1, 1)


def test_two_clients_raise_one_round_twice() -> None:
    assert match_alarms([50, 50], [40]) == (1, 0, 1, 10.0)


# ---------------------------------------------------------------------------------- no side effect


@pytest.mark.parametrize(
    ("measure", "values"),
    [(ages_of, [[1, 0], [0, 1]]), (age_variance, [1, 5, 2]), (jain_index, [3, 0, 1])],
)
def test_inputs_are_left_alone(measure: Callable[[Any], Any], values: Any) -> None:
    given_array = np.array(values)
    before = given_array.copy()
    measure(given_array)
    np.testing.assert_array_equal(given_array, before)
