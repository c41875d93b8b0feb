"""Five-sigma margins, and partitions in forms that compare."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from freshband.federated.partition import Partition


def assert_mean(values: Any, mean: float, deviation: float) -> None:
    """Hold the average of independent values against their mean."""
    margin = 5 * deviation / math.sqrt(np.size(values))
    assert abs(np.mean(values) - mean) <= margin, f"{np.mean(values)}, expected {mean} +- {margin}"


def listed(partition: Partition) -> list[list[list[int]]]:
    """Return a partition as nested lists."""
    return [[held.tolist() for held in part] for part in (partition.train, partition.val)]
