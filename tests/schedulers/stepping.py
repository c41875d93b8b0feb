"""The round in plain Python, one step at a time, with a hand on everything."""

from __future__ import annotations

from typing import Any

import numpy as np

from freshband._policy import parse_policy
from freshband._rounds import observe_round, open_desk, plan_round
from freshband.states import reserve


class Game:
    """One policy, played round by round; kernels run uncompiled."""

    def __init__(
        self,
        policy: str,
        n_clients: int,
        n_channels: int,
        *,
        horizon: int = 1000,
        seed: int = 0,
        **options: Any,
    ) -> None:
        self.policy = parse_policy(policy, options)
        self.rng = np.random.default_rng(seed)
        self.scheduler, self.matching = self.policy.start(n_clients, n_channels, self.rng, horizon)
        self.scheduler = reserve(self.scheduler, horizon)
        self.desk = open_desk(n_clients, n_channels)
        self.t = 0

    def plan(self) -> list[int]:
        """Plan the next round; return the assignment."""
        self.t += 1
        plan_round(self.scheduler, self.matching, self.desk, self.rng, self.t)
        plan: list[int] = self.desk.assignment.tolist()
        return plan

    def observe(self, outcome: Any) -> int:
        """Learn; return the channel found changed, or -1."""
        self.desk.outcome[:] = outcome
        return int(observe_round(self.scheduler, self.desk, self.t))

    def play(self, states: Any) -> int:
        """Plan and observe one round over the given states of the channels."""
        return self.observe([states[channel] for channel in self.plan()])
