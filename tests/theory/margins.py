"""Five-sigma margins, the exact law of an age, and whether the compiler is on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

needs_compiler = pytest.mark.skipif(
    bool(numba.config.DISABLE_JIT), reason="millions of rounds, too many without the compiler"
)


def standard_error(values: Any) -> float:
    """Standard error of the mean of independent values."""
    return float(np.std(values, ddof=1) / np.sqrt(np.size(values)))


def assert_mean(values: Any, expected: float) -> None:
    """Hold the mean of independent values against what it should be, within 5 sigma."""
    found, margin = float(np.mean(values)), 5 * standard_error(values)
    assert abs(found - expected) <= margin, f"{found} is not {expected} +- {margin}"


def law_of_age(means: Sequence[float]) -> NDArray[np.float64]:
    """P(a = 1), P(a = 2), ... after rounds with these means, from a(0) = 1."""
    law = np.array([1.0])
    for mean in means:
        law = np.concatenate([[mean], (1 - mean) * law])
    return law
