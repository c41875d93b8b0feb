"""Interleaved timing, so that a busy machine slows all rows alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

__all__ = ["interleave"]


def interleave(
    actions: Mapping[str, Callable[[int], object]], repeats: int, warm_up: int = 1
) -> dict[str, float]:
    """Return the median seconds of each action, all of them run in turn.

    Parameters
    ----------
    actions : mapping
        The actions to time; each is called with the number of the repetition.
    repeats : int
        The number of measured turns.
    warm_up : int
        The number of turns before, for compilation and caches; they are not measured.
    """
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(-warm_up, repeats):
        for name, action in actions.items():
            began = time.perf_counter()
            action(turn + warm_up)
            if turn >= 0:
                seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(values) for name, values in seconds.items()}
