"""Bayes' rule for channels that switch, by going through every way they could have switched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import beta, logsumexp

Heard = Sequence[Sequence[int]]  # by round and channel: 1, 0, or -1 for nothing


def evidence_and_mean(
    heard: Heard, channels: Sequence[int], hazards: Sequence[float]
) -> tuple[float, list[float], list[float]]:
    """Of channels that switch as one: P(heard), and E[mean], E[mean²] of each in the next round.

    Before every round but the first, and once more before the next, all means are drawn anew from
    U[0, 1] with the probability of the hazard after the round before.
    """
    total, first, second = 0.0, [0.0] * len(channels), [0.0] * len(channels)
    for switched in product((0, 1), repeat=len(heard)):  # after round t?
        joint = 1.0
        for s, hazard in zip(switched, hazards, strict=True):
            joint *= hazard if s else 1 - hazard
        since = [(0, 0)] * len(channels)
        for row, s in zip(heard, switched, strict=True):
            for i, channel in enumerate(channels):
                good, bad = since[i]
                if row[channel] >= 0:
                    grown = (good + row[channel], bad + 1 - row[channel])
                    joint *= beta(1 + grown[0], 1 + grown[1]) / beta(1 + good, 1 + bad)
                    since[i] = grown
            if s:
                since = [(0, 0)] * len(channels)
        total += joint
        for i, (good, bad) in enumerate(since):
            n = good + bad
            first[i] += joint * (1 + good) / (2 + n)
            second[i] += joint * (1 + good) * (2 + good) / ((2 + n) * (3 + n))
    return total, [x / total for x in first], [x / total for x in second]


def trusted(
    heard: Heard,
    n_channels: int,
    hazards: Sequence[float],
    forget: Callable[[int], float],
    idle: Callable[[int], float],
) -> tuple[list[float], list[float], list[list[float]]]:
    """Return E[mean] and E[mean²] of every channel, and the trust in each filter (2, H).

    After round t the share ``forget(t)`` of the trust is spread evenly, and where channels switch
    alone, one that was not heard switches with probability ``idle(t)`` for this reason too.
    """

    def found(heard: Heard, group: list[int], hazard: float) -> tuple[float, Any, Any]:
        alone = len(group) < n_channels or n_channels == 1
        after = [
            1 - (1 - hazard) * (1 - idle(t) * (alone and row[group[0]] < 0))
            for t, row in enumerate(heard, 1)
        ]
        return evidence_and_mean(heard, group, after)

    ways = [[[channel] for channel in range(n_channels)], [list(range(n_channels))]]
    trust = [[1 / (2 * len(hazards))] * len(hazards) for _ in ways]
    before = [[1.0] * len(hazards) for _ in ways]
    for t in range(1, len(heard) + 1):
        for w, groups in enumerate(ways):
            for h, hazard in enumerate(hazards):
                now = 1.0
                for group in groups:
                    now *= found(heard[:t], group, hazard)[0]
                trust[w][h] *= now / before[w][h]
                before[w][h] = now
        total = sum(map(sum, trust))
        lost = forget(t) if any(outcome >= 0 for outcome in heard[t - 1]) else 0.0
        even = lost / (2 * len(hazards))
        trust = [[(1 - lost) * x / total + even for x in row] for row in trust]
    first, second = [0.0] * n_channels, [0.0] * n_channels
    for w, groups in enumerate(ways):
        for h, hazard in enumerate(hazards):
            for group in groups:
                _, one, two = found(heard, group, hazard)
                for i, channel in enumerate(group):
                    first[channel] += trust[w][h] * one[i]
                    second[channel] += trust[w][h] * two[i]
    return first, second, trust


class BeginningsInLogs:
    """The filter of channels that switch together, every beginning kept, all weights as logs."""

    def __init__(self, n_channels: int, hazards: Sequence[float]) -> None:
        self.hazards = np.asarray(hazards)
        self.wins = np.zeros((1, n_channels))  # by beginning
        self.tries = np.zeros((1, n_channels))
        self.log_weight = np.zeros((len(hazards), 1))

    def hear(self, row: Sequence[int]) -> NDArray[np.float64]:
        """Take in 1 or 0 of every channel; return log P(row) with every factor doubled, (H,)."""
        won = np.asarray(row)
        hits = np.where(won == 1, self.wins, self.tries - self.wins)
        log_likelihood = np.log((2 + 2 * hits) / (2 + self.tries)).sum(axis=1)
        joint = self.log_weight + log_likelihood
        evidence: NDArray[np.float64] = logsumexp(joint, axis=1)
        stay = np.log1p(-self.hazards)[:, None] + joint - evidence[:, None]
        self.log_weight = np.column_stack([stay, np.log(self.hazards)])
        fresh = np.zeros((1, len(won)))
        self.wins = np.vstack([self.wins + won, fresh])
        self.tries = np.vstack([self.tries + 1, fresh])
        return evidence

    def largest_weights(self) -> NDArray[np.float64]:
        """Return the weight of the likeliest beginning under each hazard, (H,)."""
        largest: NDArray[np.float64] = np.exp(self.log_weight.max(axis=1))
        return largest
