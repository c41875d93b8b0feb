"""The thresholds of the GLR test against independent formulas."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

from freshband.detectors import glr
from freshband.detectors.glr import _THRESHOLDS, Glr, threshold
from freshband.errors import ParameterError
from freshband.states import reserve
from tests.detectors.feeding import feed
from tests.reference.glr import limit, limits, mixture, scan

# ------------------------------------------------------------------------------------- thresholds


@pytest.mark.parametrize("rule", _THRESHOLDS)
@given(st.integers(1, 10**9), st.floats(1e-12, 1, exclude_max=True))
def test_thresholds_equal_an_independent_formula(rule: str, n: int, delta: float) -> None:
    assert threshold(n, delta, rule) == pytest.approx(float(limit(n, delta, rule)), rel=1e-10)


@pytest.mark.parametrize("rule", ["besson", "lai"])
def test_three_halves_is_not_an_integer_division(rule: str) -> None:
    growth = threshold(4096, 0.01, rule) - threshold(1024, 0.01, rule)
    assert growth == pytest.approx(1.5 * math.log(4), rel=1e-12)


def test_the_papers_threshold_by_hand() -> None:
    assert threshold(100, 0.001) == pytest.approx(1.01 * math.log(3_000_000), rel=1e-14)
    assert threshold(1, 0.5) == pytest.approx(2 * math.log(6), rel=1e-14)


@pytest.mark.parametrize("x", [1e-6, 0.01, 0.1, 0.2, 0.5, 1.0, 5.0, 20.0, 300.0])
def test_kaufmanns_function_solves_its_equations(x: float) -> None:
    """By root finding, on both branches; the lower one takes over below x = 0.35 or so."""
    u = brentq(lambda u: u - math.log(u) - 1 - x, 1, 10 + 2 * x, xtol=1e-14)
    y = (u + math.log(math.pi**2 / 3)) / 2
    corner = 1 / math.log(1.5)
    if y >= corner - math.log(corner):
        v = brentq(lambda v: v - math.log(v) - y, 1, 10 + 2 * y, xtol=1e-14)
        expected = 2 * v * math.exp(1 / v)
    else:
        expected = 3 * (y - math.log(math.log(1.5)))
    assert glr._mixture(x) == pytest.approx(expected, rel=1e-9)
    assert float(mixture(x)) == pytest.approx(expected, rel=1e-9)
    if x >= 5:  # the approximation in their paper
        assert glr._mixture(x) == pytest.approx(x + 4 * math.log(1 + x + math.sqrt(2 * x)), rel=0.1)


@pytest.mark.parametrize("rule", range(4))
@pytest.mark.parametrize("delta", [1e-9, 1e-3, 0.9])
def test_the_level_patience_counts_on_is_a_monotone_lower_bound(rule: int, delta: float) -> None:
    counts = sorted({*range(1, 2001), *(int(1.01**k) for k in range(770, 2000))})
    levels = [glr._level(n, delta, rule) for n in counts]
    assert all(a <= b for a, b in pairwise(levels))
    assert all(
        level <= threshold(n, delta, _THRESHOLDS[rule])
        for n, level in zip(counts, levels, strict=True)
    )


@pytest.mark.parametrize("rule", _THRESHOLDS)
@given(st.floats(1e-9, 0.99), st.floats(1e-9, 0.99))
def test_delta_is_what_the_user_gave(rule: str, delta: float, other: float) -> None:
    assert Glr(delta=delta, threshold=rule).start(3).rule[0]["delta"] == delta
    if rule in ("besson", "lai"):  # changing it moves the threshold by exactly its logarithm
        moved = threshold(50, delta, rule) - threshold(50, other, rule)
        assert moved == pytest.approx(math.log(other / delta), abs=1e-12)
    elif delta < other:
        assert threshold(50, delta, rule) >= threshold(50, other, rule)


def test_a_smaller_delta_alarms_later() -> None:
    outcomes = np.repeat(np.array([1, 0], np.int8), 100)
    first = []
    for delta in (0.1, 1e-3, 1e-6, 1e-12):
        said = feed(reserve(Glr(delta=delta).start(1), 200), outcomes)
        first.append(int(said.alarm.argmax()))
        expected = scan(outcomes, limits(200, delta, "paper")).alarm.argmax()
        assert first[-1] == expected
    assert first == sorted(set(first))


@pytest.mark.parametrize("delta", [0, 1, -0.1, 2, math.nan, math.inf, "x", None, True])
def test_delta_out_of_range_is_refused(delta: Any) -> None:
    with pytest.raises(ParameterError, match="delta must be a number"):
        Glr(delta=delta)
