"""Two clients on two channels of known means, as a Markov decision process.

The state is the pair of ages, cut off at ``cap``; an action says who gets which channel; a round
costs the sum of both ages after it. Relative value iteration brackets the best, or a given
rule's, long-run cost per round, so the figures come with their own error bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

STRAIGHT, CROSSED = range(2)  # client 0 on channel 0, or on channel 1


class Solution(NamedTuple):
    """A long-run cost and the rule that attains it."""

    low: float  # the cost per round lies between these two
    high: float
    gain: NDArray[np.float64]  # (cap, cap) how much worse CROSSED is than STRAIGHT, in the long run


def look_ahead(
    means: Sequence[float], action: int, worth: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Expected cost of a round from each pair of ages, plus the worth of where it leads."""
    cap = len(worth)
    age = np.arange(1, cap + 1)
    older = np.minimum(np.arange(1, cap + 1), cap - 1)  # position of age + 1
    p, q = means if action == STRAIGHT else means[::-1]  # success of client 0, of client 1
    cost = 2 + (1 - p) * age[:, None] + (1 - q) * age[None, :]
    onward = (
        p * q * worth[0, 0]
        + p * (1 - q) * worth[0, older][None, :]
        + (1 - p) * q * worth[older, 0][:, None]
        + (1 - p) * (1 - q) * worth[np.ix_(older, older)]
    )
    return np.asarray(cost + onward)


def solve(means: Sequence[float], cap: int, precision: float = 1e-9) -> Solution:
    """Find the least possible cost per round."""
    worth = np.zeros((cap, cap))
    while True:
        straight = look_ahead(means, STRAIGHT, worth)
        crossed = look_ahead(means, CROSSED, worth)
        better = np.minimum(straight, crossed)
        step = better - worth
        if np.ptp(step) < precision:
            return Solution(float(step.min()), float(step.max()), crossed - straight)
        worth = better - better[0, 0]


def evaluate(
    means: Sequence[float], rules: Sequence[NDArray[np.bool_]], precision: float = 1e-9
) -> tuple[float, float]:
    """Bracket the cost per round of a cycle of rules; each says in which states to cross."""
    worth = np.zeros(rules[0].shape)
    while True:
        ahead = worth
        for rule in reversed(rules):
            straight = look_ahead(means, STRAIGHT, ahead)
            crossed = look_ahead(means, CROSSED, ahead)
            ahead = np.where(rule, crossed, straight)
        step = (ahead - worth) / len(rules)
        if np.ptp(step) < precision:
            return float(step.min()), float(step.max())
        worth = ahead - ahead[0, 0]


def age_sorted(cap: int) -> list[NDArray[np.bool_]]:
    """The older client gets channel 0, which must be the better one."""
    age = np.arange(cap)
    return [age[None, :] > age[:, None]]


def taking_turns(cap: int) -> list[NDArray[np.bool_]]:
    """Cross in every second round."""
    return [np.zeros((cap, cap), np.bool_), np.ones((cap, cap), np.bool_)]


def never_changing(cap: int) -> list[NDArray[np.bool_]]:
    """Client 0 keeps channel 0."""
    return [np.zeros((cap, cap), np.bool_)]
