"""Algorithm 2 with lists, a scan over all splits, and nothing remembered that can be recomputed.

The printed algorithm with the corrections of erratum E15: exploration 1-based, D = 0 first, means
over what was heard since the restart, one restart a round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.reference.glr import best_split, limit
from tests.reference.ordering import best_first


@dataclass
class SlowGlrCucb:
    """One run; ``rate(elapsed, episode)`` is α at the start of a sweep."""

    n_clients: int
    n_channels: int
    rate: Any
    fill: str
    restart: str
    delta: float
    threshold: str = "paper"
    index_c: float = 1.5
    restarts: list[int] = field(default_factory=list)  # the rounds τ of alarms
    tau: int = 0
    episode: int = 1
    sweep: int = 1  # the t - τ at which the current sweep began
    period: int = 0

    def __post_init__(self) -> None:
        self.heard: list[list[int]] = [[] for _ in range(self.n_channels)]  # what means are of
        self.watched: list[list[int]] = [[] for _ in range(self.n_channels)]  # what is tested
        self.deck = list(range(self.n_channels))

    def forced(self, elapsed: int) -> int | None:
        """The channel this round has to try: sweeps 1..N, one every ⌊N/α⌋ rounds."""
        if elapsed == 1 or elapsed == self.sweep + self.period:
            self.sweep = elapsed
            alpha = self.rate(elapsed, self.episode)
            self.period = 10**15 if alpha == 0 else math.floor(self.n_channels / alpha)
            self.period = max(self.period, self.n_channels)
        place = elapsed - self.sweep
        return place if place < self.n_channels else None

    def mean(self, channel: int) -> float:
        heard = self.heard[channel]
        return sum(heard) / len(heard) if heard else 0.5

    def index(self, channel: int, elapsed: int) -> float:
        count = len(self.heard[channel])
        if count == 0:
            return math.inf
        return self.mean(channel) + math.sqrt(self.index_c * math.log(elapsed) / count)

    def select(self, t: int, rng: np.random.Generator) -> tuple[set[int], list[float]]:
        """The chosen set and every channel's index."""
        elapsed = t - self.tau
        indices = [self.index(channel, elapsed) for channel in range(self.n_channels)]
        forced = self.forced(elapsed)
        if forced is None:
            chosen = best_first(indices, t, range(self.n_channels))[: self.n_clients]
        elif self.fill == "index":
            others = [channel for channel in range(self.n_channels) if channel != forced]
            chosen = [forced, *best_first(indices, t, others)[: self.n_clients - 1]]
        else:  # draw the others by lot, from the same deck with the same draws
            self.deck.insert(0, forced)
            where = self.deck.index(forced, 1)
            self.deck[where] = self.deck[1]  # what lay on top changes places with it
            del self.deck[1]
            for j in range(1, self.n_clients):
                other = j + int(rng.random() * (self.n_channels - j))
                self.deck[j], self.deck[other] = self.deck[other], self.deck[j]
            chosen = self.deck[: self.n_clients]
        return set(chosen), indices

    def observe(self, t: int, assignment: Any, outcome: Any) -> int:
        """Learn; return the channel of an alarm, or -1."""
        played = [(int(k), int(x)) for k, x in zip(assignment, outcome, strict=True) if x >= 0]
        for channel, x in played:
            self.heard[channel].append(x)
        for channel, x in played:
            self.watched[channel].append(x)
            split = self.change(channel)
            if split is not None:
                self.start_over(t, channel, split)
                return channel
        return -1

    def change(self, channel: int) -> int | None:
        """The number of observations before the change, if there is one."""
        watched = self.watched[channel]
        n = len(watched)
        sums = np.concatenate(([0], np.cumsum(watched, dtype=np.int64)))
        statistic, split = best_split(sums, n)
        return split if statistic >= float(limit(n, self.delta, self.threshold)) else None

    def start_over(self, t: int, channel: int, split: int) -> None:
        if self.restart == "local":
            self.heard[channel] = []
            self.watched[channel] = []
            return
        kept = self.watched[channel][split:] if self.restart == "localised" else []
        self.heard = [[] for _ in range(self.n_channels)]
        self.watched = [[] for _ in range(self.n_channels)]
        self.heard[channel] = kept
        self.restarts.append(t)
        self.tau = t
        self.episode += 1
