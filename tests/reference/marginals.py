"""Probabilities of being chosen, by bisection and with lists."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence


def root(rises: Callable[[float], float], low: float, high: float) -> float:
    """Where a non-decreasing function passes 0."""
    for _ in range(70):
        middle = (low + high) / 2
        if rises(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def exp3_m(weights: Sequence[float], size: int, gamma: float) -> list[float]:
    """Steps 1 to 4 of Exp3.M: cut the largest weights such that no probability exceeds 1."""
    n = len(weights)
    most = (1 / size - gamma / n) / (1 - gamma)

    def share_of(cap: float) -> float:
        return cap / sum(min(w, cap) for w in weights)

    cap = math.inf
    if max(weights) >= most * sum(weights):
        cap = root(lambda x: share_of(x) - most, min(weights) * 1e-9, max(weights))
    cut = [min(w, cap) for w in weights]
    return [size * ((1 - gamma) * w / sum(cut) + gamma / n) for w in cut]


def tsallis(losses: Sequence[float], size: int, eta: float) -> list[float]:
    """Minimise <p, L> + Ψ(p) / η over p with the given sum, by its multiplier."""
    n = len(losses)
    gamma = 1.0 if 2 * size <= n else min(1.0, 1 / math.sqrt(math.log(n / (n - size))))

    def marginal(loss: float, level: float) -> float:
        def falls(x: float) -> float:
            return 1 / (2 * math.sqrt(x)) + gamma * math.log1p(-x) - (eta * loss - level)

        return root(lambda x: -falls(x), 1e-300, 1 - 1e-16)

    def excess(level: float) -> float:
        return sum(marginal(loss, level) for loss in losses) - size

    reach = 1e3 + eta * max(losses)
    level = root(excess, -reach, reach)
    return [marginal(loss, level) for loss in losses]
