"""Results compared bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray


def values(dataset: xr.Dataset) -> dict[str, NDArray[Any]]:
    """Everything but how long it took."""
    return {str(name): array.values for name, array in dataset.items() if name != "seconds"}


def assert_same(one: xr.Dataset, other: xr.Dataset) -> None:
    a, b = values(one), values(other)
    assert set(a) == set(b)
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name, strict=True)
