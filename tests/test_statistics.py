"""Means, errors, intervals and tests against their textbook forms."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import numpy as np
import pytest
from scipy import special, stats

import freshband
from freshband.statistics import (
    _quantile,
    _tail,
    holm,
    margin,
    mean_and_error,
    p_value,
    standard_error,
)

VALUES = np.random.default_rng(0).normal(size=(7, 3))


@pytest.mark.parametrize("axis", [0, 1])
def test_standard_errors_are_those_of_the_textbook(axis: int) -> None:
    expected = [
        statistics.stdev(each) / math.sqrt(len(each)) for each in np.moveaxis(VALUES, axis, -1)
    ]
    np.testing.assert_allclose(standard_error(VALUES, axis), expected)


@pytest.mark.parametrize("shape", [(1,), (1, 4), (0, 2)])
def test_fewer_than_two_values_have_no_error(shape: tuple[int, ...]) -> None:
    found = standard_error(np.ones(shape))
    assert found.shape == shape[1:]
    assert np.isnan(found).all()


def test_intervals_and_tests_are_those_of_scipy() -> None:
    for row in VALUES:
        test = stats.ttest_1samp(row, 0.25)
        low, high = test.confidence_interval(0.95)
        assert p_value(row, 0.25) == pytest.approx(test.pvalue)
        assert float(margin(row)) == pytest.approx((high - low) / 2)
    np.testing.assert_allclose(margin(VALUES, 1), [float(margin(row)) for row in VALUES])
    assert np.isnan(margin(np.ones((1, 4)))).all()
    assert math.isnan(p_value([3.0]))


@pytest.mark.parametrize("freedom", [1, 2, 4, 19, 200, 10_000])
def test_students_t_is_that_of_scipy(freedom: int) -> None:
    for t in (0.0, 1e-6, 0.3, 1.0, 2.5, 8.0, 1000.0):
        assert _tail(freedom, t) == pytest.approx(special.stdtr(freedom, -t), rel=1e-9, abs=1e-300)
    for tail in (0.4, 0.05, 0.025, 1e-6):
        assert _quantile(freedom, tail) == pytest.approx(-special.stdtrit(freedom, tail), rel=1e-9)


def test_holm_corrects_the_smallest_most() -> None:
    found = holm([0.04, math.nan, 0.001, 0.03, 0.9])
    assert found[:1] + found[2:] == pytest.approx([0.09, 0.004, 0.09, 0.9])
    assert math.isnan(found[1])
    assert holm([0.4, 0.5]) == [0.8, 0.8]  # never beyond 1, nor below a smaller one
    assert holm([]) == []


def test_values_that_are_missing_do_not_count() -> None:
    found = mean_and_error([np.nan, 1.0, 2.0, 6.0])
    assert found == {"mean": 3.0, "se": pytest.approx(statistics.stdev([1, 2, 6]) / math.sqrt(3))}
    assert mean_and_error([4.0, np.nan]) == {"mean": 4.0, "se": None}
    assert mean_and_error([np.nan]) is None
    assert mean_and_error([]) is None


def test_the_package_computes_standard_errors_in_one_place() -> None:
    sources = Path(freshband.__file__).parent.rglob("*.py")
    found = [path.name for path in sources if "ddof=1" in path.read_text(encoding="utf-8")]
    assert found == ["statistics.py"]
