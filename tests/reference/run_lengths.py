"""Bayesian online change-point detection with lists: every round may begin a segment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class RunLengths:
    """The weight of every beginning of the present segment, and the outcomes since."""

    def __init__(self, n_channels: int, hazard: float) -> None:
        self.n_channels, self.hazard = n_channels, hazard
        self.beginnings: list[Any] = [[1.0, self._nothing()]]

    def _nothing(self) -> list[list[int]]:
        return [[] for _ in range(self.n_channels)]

    def rate(self, outcomes: Sequence[int]) -> float:
        return (1 + sum(outcomes)) / (2 + len(outcomes))

    def observe(self, heard: Sequence[tuple[int, int]]) -> None:
        """One round: a change may come before it; then (channel, outcome) are heard."""
        for beginning in self.beginnings:
            beginning[0] *= 1 - self.hazard
        self.beginnings.append([self.hazard, self._nothing()])
        for channel, outcome in heard:
            for beginning in self.beginnings:
                rate = self.rate(beginning[1][channel])
                beginning[0] *= rate if outcome else 1 - rate
                beginning[1][channel].append(outcome)
        total = sum(weight for weight, _ in self.beginnings)
        for beginning in self.beginnings:
            beginning[0] /= total

    def mean(self, channel: int) -> float:
        return sum(weight * self.rate(seen[channel]) for weight, seen in self.beginnings)
