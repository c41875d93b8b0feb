"""AdSwitch's tests with lists: all outcomes of the episode, summed anew for every interval."""

from __future__ import annotations

import math
from collections.abc import Sequence

LEVELS = 24


class SlowAdSwitch:
    """What is good and what has changed; who is played is decided elsewhere."""

    def __init__(self, n_channels: int, size: int, eviction: float, horizon: int) -> None:
        self.n_channels, self.size, self.eviction = n_channels, size, eviction
        self.log_rounds = math.log(horizon)
        self.begin(0)

    def begin(self, t: int) -> None:
        self.start = t
        self.heard: list[tuple[int, int, int]] = []  # round of the episode, channel, outcome
        self.good = [True] * self.n_channels
        self.left: dict[int, tuple[float, float]] = {}  # mean and gap of bad channels
        self.bounds: list[list[tuple[float, float]]] = [[(0, 1)] for _ in range(self.n_channels)]

    def since(self, mark: int, channel: int) -> list[int]:
        return [x for e, k, x in self.heard if e > mark and k == channel]

    def marks(self, elapsed: int) -> set[int]:
        """The last two multiples of each power of two before this round."""
        latest = [(elapsed - 1) // 2**level * 2**level for level in range(LEVELS)]
        return {
            m - back * 2**j for j, m in enumerate(latest) for back in (0, 1) if m >= back * 2**j
        }

    def has_changed(self, elapsed: int, channel: int) -> bool:
        far = False
        for mark in self.marks(elapsed):
            outcomes = self.since(mark, channel)
            if outcomes:
                mean = sum(outcomes) / len(outcomes)
                width = math.sqrt(2 * self.log_rounds / len(outcomes))
                self.bounds[channel].append((mean - width, mean + width))
                if not self.good[channel]:
                    before, gap = self.left[channel]
                    far |= abs(mean - before) > gap / 4 + width
        if not self.good[channel]:
            return far
        lower, upper = zip(*self.bounds[channel], strict=True)
        return max(lower) > min(upper)

    def evict(self, elapsed: int) -> None:
        for level in range(LEVELS):
            mark = elapsed - 2 ** (level + 1)
            if elapsed % 2**level or mark < 0:
                continue
            lists = {k: self.since(mark, k) for k in range(self.n_channels) if self.good[k]}
            means = {k: sum(x) / len(x) for k, x in lists.items() if len(x) > 1}
            if len(means) <= self.size:
                continue
            best = sorted(means.values(), reverse=True)[self.size - 1]
            for k, mean in means.items():
                if best - mean > math.sqrt(self.eviction * self.log_rounds / (len(lists[k]) - 1)):
                    self.good[k] = False
                    self.left[k] = (mean, best - mean)

    def observe(self, t: int, channels: Sequence[int], outcomes: Sequence[int]) -> int:
        elapsed = t - self.start
        self.heard += [(elapsed, k, x) for k, x in zip(channels, outcomes, strict=True)]
        for channel in channels:
            if self.has_changed(elapsed, channel):
                self.begin(t)
                return channel
        self.evict(elapsed)
        return -1
