"""Mean and standard error over runs: the one place that computes them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["mean_and_error", "standard_error"]


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
