"""The round in plain Python, one step at a time, with a hand on everything; and long runs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from freshband._lending import Caller
from freshband._policy import parse_policy
from freshband._rounds import observe_round, open_desk, plan_round
from freshband.channels.adversary import start_reacting
from freshband.simulation._loop import open_tally, run_block
from freshband.states import reserve
from tests.playing import AIR


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


class LongRun:
    """A policy in the compiled loop over stationary stretches."""

    def __init__(self, policy: str, rounds: int, seed: int, **options: Any) -> None:
        self.rng = np.random.default_rng(seed)
        self.air = np.random.default_rng(seed + 1)
        self.state, self.matching = parse_policy(policy, options).start(2, 5, self.rng, rounds)
        self.desk = open_desk(2, 5)
        self.t = 0

    def play(self, means: Any, rounds: int) -> NDArray[np.int64]:
        """Play on; return what was assigned in this stretch."""
        assigned = []
        for _ in range(rounds // 50_000):
            states = (self.air.random((50_000, 5), dtype=np.float32) < means).astype(np.uint8)
            tally = open_tally(2, np.array([10**9]), 0)
            tally = tally._replace(assignment_log=np.zeros((self.t + 50_000, 2), np.int64))
            tally = tally._replace(outcome_log=np.zeros((self.t + 50_000, 2), np.int8))
            self.state = reserve(self.state, 50_000)
            shown = np.broadcast_to(np.asarray(means), (50_000, 5)).copy()
            parts = self.state, self.matching, self.desk, tally, start_reacting(AIR), self.rng
            Caller(run_block)((*parts, states, shown), self.t)
            assigned.append(tally.assignment_log[self.t :])
            self.t += 50_000
        return np.concatenate(assigned)
