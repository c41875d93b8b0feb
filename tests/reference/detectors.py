"""Change detectors as their papers write them: the whole history at every outcome."""

from __future__ import annotations

import math
from collections.abc import Sequence


def halves_differ(history: Sequence[int], window: int, threshold: float) -> bool:
    """Algorithm 2 of Cao et al.: compare the halves of the last ``window`` outcomes."""
    if len(history) < window:
        return False
    last = history[-window:]
    return abs(sum(last[window // 2 :]) - sum(last[: window // 2])) > threshold


def cusum(
    history: Sequence[int], warm_up: int, drift: float, threshold: float
) -> tuple[bool, tuple[int, int]]:
    """Algorithm 2 of Liu et al.: whether the last outcome raises an alarm, and what came since."""
    if len(history) <= warm_up:
        return False, (0, 0)
    mean = sum(history[:warm_up]) / warm_up
    falls = rises = 0.0
    since_fall: list[int] = []
    since_rise: list[int] = []
    for x in history[warm_up:]:
        falls = max(0.0, falls + (mean - x) - drift)
        rises = max(0.0, rises + (x - mean) - drift)
        since_fall = [*since_fall, x] if falls > 0 else []
        since_rise = [*since_rise, x] if rises > 0 else []
    since = since_rise if rises > falls else since_fall
    return max(falls, rises) > threshold, (len(since), sum(since))


def log_probability(outcomes: Sequence[int]) -> float:
    """Logarithm of the probability of outcomes whose success rate is uniform in [0, 1]."""
    n, ones = len(outcomes), sum(outcomes)
    return math.lgamma(ones + 1) + math.lgamma(n - ones + 1) - math.lgamma(n + 2)


def best_beginning(history: Sequence[int]) -> tuple[float, int]:
    """Log odds of the likeliest change against none, and the number of outcomes before it."""
    whole = log_probability(history)
    odds = [
        (log_probability(history[:s]) + log_probability(history[s:]) - whole, s)
        for s in range(1, len(history))
    ]
    return max(odds, default=(-math.inf, 0))
