"""Algorithm 1 with a logarithmic weight for each of the C(N, M) super-arms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass
class DenseMExp3:
    """``gamma(t)`` and ``share(t)`` are the rules; ``scale`` divides the reward."""

    n_clients: int
    n_channels: int
    gamma: Any
    share: Any
    scale: float

    def __post_init__(self) -> None:
        self.arms = list(combinations(range(self.n_channels), self.n_clients))
        self.log_weights = np.zeros(len(self.arms))

    def position(self, channels: Any) -> int:
        return self.arms.index(tuple(sorted(int(k) for k in channels)))

    def distribution(self, t: int) -> NDArray[np.float64]:
        """p_I = (1-γ) w_I / W + γ/C."""
        weights = np.exp(self.log_weights - self.log_weights.max())
        gamma = self.gamma(t)
        probabilities: NDArray[np.float64] = (1 - gamma) * weights / weights.sum() + gamma / len(
            self.arms
        )
        return probabilities

    def learn(self, t: int, channels: Any, reward: float, chance: float | None = None) -> None:
        """w_I <- w_I exp(γ X / (scale p_I C)), then everybody gains e α / C of the total."""
        arm = self.position(channels)
        chance = self.distribution(t)[arm] if chance is None else chance
        self.log_weights[arm] += self.gamma(t) * reward / self.scale / chance / len(self.arms)
        share = self.share(t)
        if share > 0:
            top = self.log_weights.max()
            total = top + math.log(np.exp(self.log_weights - top).sum())
            gift = math.log(math.e * share / len(self.arms)) + total
            self.log_weights = np.logaddexp(self.log_weights, gift)
