"""Means over runs with their errors, intervals and tests: the one place that computes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def standard_error(values: ArrayLike, axis: int = 0) -> NDArray[Any]:
    """Return the standard error of the mean along an axis; NaN where it has fewer than two values.

    Examples
    --------
    >>> standard_error([[1.0, 2.0], [3.0, 2.0]]).tolist(), float(standard_error([5.0]))
    ([1.0, 0.0], nan)
    """
    array = np.asarray(values, dtype=np.float64)
    count = array.shape[axis]
    if count < 2:
        return np.full(array.sum(axis=axis).shape, np.nan)
    return np.asarray(array.std(axis=axis, ddof=1) / math.sqrt(count))


def mean_and_error(values: ArrayLike) -> dict[str, float | None] | None:
    """Return mean and standard error of the values that are not NaN, or None without any.

    Examples
    --------
    >>> mean_and_error([1.0, float("nan"), 3.0]), mean_and_error([2.0])
    ({'mean': 2.0, 'se': 1.0}, {'mean': 2.0, 'se': None})
    """
    known = np.asarray(values, dtype=np.float64)
    known = known[~np.isnan(known)]
    if known.size == 0:
        return None
    return {
        "mean": float(known.mean()),
        "se": float(standard_error(known)) if known.size > 1 else None,
    }


def margin(values: ArrayLike, axis: int = 0, level: float = 0.95) -> NDArray[Any]:
    """Return half the width of Student's t interval of the mean; NaN with fewer than two values.

    Examples
    --------
    >>> margin([1.0, 2.0, 3.0, 4.0, 5.0]).round(3).item()  # 2.776 standard errors, not 2
    1.963
    """
    error = standard_error(values, axis)
    freedom = np.asarray(values).shape[axis] - 1
    return np.asarray(error * _quantile(freedom, (1 - level) / 2) if freedom > 0 else error)


def p_value(values: ArrayLike, bound: float = 0.0) -> float:
    """Return how likely a mean so far from the bound is if the true mean is the bound.

    Two-sided, by Student's t test; NaN with fewer than two values.

    Examples
    --------
    >>> round(p_value([1.0, 2.0, 3.0, 4.0, 5.0]), 4), p_value([1.0, 1.0]), p_value([0.0, 0.0])
    (0.0132, 0.0, 1.0)
    """
    array = np.asarray(values, dtype=np.float64).ravel()
    beyond, error = float(array.mean()) - bound, float(standard_error(array))
    if error == 0:
        return 1.0 if beyond == 0 else 0.0
    return 2 * _tail(array.size - 1, abs(beyond) / error)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values corrected for their number by Holm's method; NaN is no test and stays.

    If every test below a level is called a success, the probability of any false one is at most
    that level.

    Examples
    --------
    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03, float("nan")])]
    [0.03, 0.06, 0.06, nan]
    """
    corrected, least = [*p_values], 0.0
    tested = sorted((p, place) for place, p in enumerate(p_values) if not math.isnan(p))
    for rank, (p, place) in enumerate(tested):
        least = max(least, min(1.0, (len(tested) - rank) * p))
        corrected[place] = least
    return corrected


# Student's t distribution, so that two of its values do not cost everybody 150 MB of SciPy.


def _tail(freedom: int, t: float) -> float:
    """Return the probability that Student's t exceeds t >= 0: half of I_x(freedom/2, 1/2)."""
    if math.isnan(t):
        return math.nan
    whole = freedom + t * t
    return 0.5 * _incomplete_beta(freedom / whole, t * t / whole, freedom / 2, 0.5)


def _quantile(freedom: int, tail: float) -> float:
    """Return the t that is exceeded with probability ``tail`` < 1/2, by bisection."""
    low, high = 0.0, 1.0
    while _tail(freedom, high) > tail:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _tail(freedom, middle) > tail else (low, middle)
    return (low + high) / 2


def _incomplete_beta(x: float, y: float, a: float, b: float) -> float:
    """Return I_x(a, b), where y = 1 - x, by its continued fraction (Abramowitz, Stegun 26.5.8)."""
    if x == 0 or y == 0:
        return float(y == 0)
    if x > (a + 1) / (a + b + 2):  # where the fraction of the other side converges faster
        return 1 - _incomplete_beta(y, x, b, a)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front += a * (math.log(x) if x < y else math.log1p(-y))
    front += b * (math.log(y) if y < x else math.log1p(-x))
    fraction, c, d = 1.0, 1.0, 0.0  # Lentz's method: c and d are ratios of its convergents
    for step in range(500):
        m = step // 2
        if step == 0:
            term = 1.0
        elif step % 2 == 0:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        else:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1 / (1 + term * d)
        c = 1 + term / c
        fraction *= c * d
        if abs(c * d - 1) < 1e-16:
            break
    return math.exp(front) * (fraction - 1) / a
