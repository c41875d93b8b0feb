"""MASTER over UCB with lists, one instance at a time."""

from __future__ import annotations

import math
from typing import Any


class SlowMaster:
    """Blocks, instances and tests; random numbers are drawn in the order of the schedule."""

    def __init__(self, n_clients: int, n_channels: int, scale: float, horizon: int) -> None:
        self.arms = n_channels / n_clients
        self.n_channels, self.scale, self.horizon = n_channels, scale, horizon
        self.order, self.restarts = -1, 0
        self.begun = 0

    def rho(self, rounds: float) -> float:
        return math.sqrt(self.arms / rounds) + self.arms / rounds

    def tolerance(self, rounds: float) -> float:
        logs = 6 * (math.log2(self.horizon) + 1) * math.log(self.horizon**2)
        return self.scale * logs * self.rho(rounds)

    def index(self, t: int, rng: Any) -> list[float]:
        if self.order < 0 or t == self.begun + 2**self.order:
            self.order, self.begun = self.order + 1, t
            self.instances: dict[int, Any] = {}
            self.hopes: list[float] = []
            self.rewards: list[float] = []
        position = t - self.begun
        for m in range(self.order + 1):
            if position % 2**m == 0:
                begins = rng.random() < self.rho(2**self.order) / self.rho(2**m)
                self.instances.pop(m, None)
                if begins or m == self.order:
                    heard = [[] for _ in range(self.n_channels)]  # type: ignore[var-annotated]
                    self.instances[m] = {"begun": position, "rounds": 0, "heard": heard}
        self.active = self.instances[min(self.instances)]
        self.active["rounds"] += 1
        root = math.sqrt(2 * math.log(self.active["rounds"]))
        return [
            sum(x) / len(x) + root / math.sqrt(len(x)) if x else math.inf
            for x in self.active["heard"]
        ]

    def observe(self, t: int, channels: list[int], outcomes: list[int], hope: float) -> None:
        for channel, outcome in zip(channels, outcomes, strict=True):
            self.active["heard"][channel].append(outcome)
        self.hopes.append(hope)
        self.rewards.append(sum(outcomes) / len(outcomes))
        length = len(self.rewards)
        behind = (sum(self.hopes) - sum(self.rewards)) / length
        fails = behind >= 3 * self.tolerance(length)
        for m, one in self.instances.items():
            if one["begun"] + 2**m == length:
                reward = sum(self.rewards[one["begun"] :]) / 2**m
                fails |= reward >= min(self.hopes) + 9 * self.tolerance(2**m)
        if fails:
            self.order = -1
            self.restarts += 1
