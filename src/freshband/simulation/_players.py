"""One policy in one run: its states, and a block of rounds with them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from freshband._jit import explained
from freshband._policy import Policy
from freshband._rounds import Desk, broken_rule, open_desk
from freshband._seeding import Role, generator
from freshband.channels.adversary import Still, start_reacting
from freshband.channels.base import Block, ChannelModel, links_differ
from freshband.fleet._state import open_fleet
from freshband.fleet.conditions import Conditions, SimulatedFleet
from freshband.schedulers._aoi_aware import AoIAwareState
from freshband.schedulers.oracle import Oracle
from freshband.simulation._fleet_loop import open_fleet_tally, open_truth, run_fleet_block
from freshband.simulation._loop import Tally, open_tally, run_block
from freshband.states import reserve


def selection_of(policy: Policy) -> str | None:
    """Return what an oracle knows, or None for a policy that learns."""
    return policy.scheduler.selection if isinstance(policy.scheduler, Oracle) else None


class Player:
    """A policy that plays the problem of the paper; blocks hold (n, N) states."""

    tally: Tally

    def __init__(
        self,
        policy: Policy,
        model: ChannelModel,
        fleet: SimulatedFleet,
        clients: int,
        rounds: int,
        seed: int,
        run: int,
    ) -> None:
        self.policy, self.seconds = policy, 0.0
        self.rng = generator(seed, Role.POLICY, run)
        self.jammer = start_reacting(model)
        links = links_differ(model)
        most = fleet.most(clients, model.n_channels)
        self.scheduler, self.matching = policy.start(
            clients, model.n_channels, self.rng, rounds, most=most, links=links
        )

    def look_ahead(self, worth: NDArray[np.float64]) -> None:
        """Tell an oracle of fixed sets what each channel, or each link, is worth."""
        plain = self.scheduler
        oracle = plain.inner if isinstance(plain, AoIAwareState) else plain
        oracle.worth[:] = worth

    def play(self, t: int, block: Block, conditions: Conditions) -> None:
        """Play a block of rounds, of which the first is t + 1."""
        began = time.perf_counter()
        self.scheduler = reserve(self.scheduler, len(block.states))
        if not isinstance(self.jammer, Still):  # it changes the block, which others play too
            block = Block(block.states.copy(), block.means.copy())
        with explained(self.policy.name):
            broken, alarm = self._play(t, block, conditions)
        if broken:
            raise broken_rule(self.policy.name, broken, self.desk, alarm)
        self.seconds += time.perf_counter() - began

    ...
