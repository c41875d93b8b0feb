"""One policy in one run: its states, and how it plays a block of rounds."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from freshband._jit import explained
from freshband._lending import Caller
from freshband._policy import Policy
from freshband._rounds import Desk, broken_rule, open_desk
from freshband._seeding import Role, generator
from freshband.channels.adversary import Still, start_reacting
from freshband.channels.base import Block, ChannelModel, Stream, links_differ, open_air
from freshband.fleet._state import open_fleet
from freshband.fleet.conditions import Conditions, ConditionStream, SimulatedFleet, open_conditions
from freshband.schedulers._aoi_aware import AoIAwareState
from freshband.schedulers.oracle import Oracle
from freshband.simulation._fleet_loop import open_fleet_tally, open_truth, run_fleet_block
from freshband.simulation._loop import Tally, open_tally, run_block
from freshband.states import reserve


def selection_of(policy: Policy) -> str | None:
    """Return what an oracle knows, or None for a policy that learns."""
    return policy.scheduler.selection if isinstance(policy.scheduler, Oracle) else None


def is_papers_problem(model: ChannelModel, fleet: SimulatedFleet, clients: int) -> bool:
    """Return whether nothing goes beyond the problem of the paper."""
    return fleet.is_plain and clients <= model.n_channels and not links_differ(model)


@dataclass(frozen=True)
class Game:
    """What all players of a run share."""

    model: ChannelModel
    fleet: SimulatedFleet
    clients: int
    rounds: int
    seed: int
    run: int
    checkpoints: NDArray[np.int64]

    @property
    def links(self) -> bool:
        """Whether links differ per client."""
        return links_differ(self.model)

    def open_air(self) -> Stream:
        """Open the air of the run."""
        return open_air(self.model, self.rounds, self.seed, self.run, clients=self.clients)

    def open_fates(self) -> ConditionStream:
        """Open what happens to clients, channels and acknowledgements in the run."""
        n_channels = self.model.n_channels
        return open_conditions(self.fleet, self.clients, n_channels, self.seed, self.run)

    def nothing(self) -> tuple[Block, Conditions]:
        """Return a block of no rounds."""
        rows = (self.clients,) if self.links else ()
        states = np.zeros((0, *rows, self.model.n_channels), np.uint8)
        return Block(states, states.astype(np.float64)), self.open_fates().block(0)

    def is_plain(self, policy: Policy) -> bool:
        """Whether a policy plays the problem of the paper."""
        plain = is_papers_problem(self.model, self.fleet, self.clients)
        return plain and not policy.scheduler.client_scores


def enter(policy: Policy, game: Game, *, informed: bool = False, check: bool = False) -> Player:
    """Return a player; one that is ``informed`` learns every outcome, and who is there, at once.

    With ``check`` it is made sure that the policy can play, once for all runs of a simulation.
    """
    if game.is_plain(policy):
        return _PlainPlayer(policy, game, check)
    return _FleetPlayer(policy, game, check, informed=informed)


class Player(ABC):
    """A policy that plays block by block."""

    tally: Tally
    desk: Desk

    def __init__(self, policy: Policy, game: Game, check: bool = False) -> None:
        self.policy, self.seconds = policy, 0.0
        self.rng = generator(game.seed, Role.POLICY, game.run)
        self.jammer = start_reacting(game.model)
        n_channels = game.model.n_channels
        self.scheduler, self.matching = policy.start(
            game.clients,
            n_channels,
            self.rng,
            game.rounds,
            most=game.fleet.most(game.clients, n_channels),
            links=game.links,
            check=check,
        )

    @property
    @abstractmethod
    def exposure(self) -> float:
        """The sum of weights over all rounds and clients that were there."""

    def look_ahead(self, worth: NDArray[np.float64]) -> None:
        """Tell an oracle of fixed sets what each channel, or each link, is worth in hindsight."""
        state = self.scheduler
        oracle = state.inner if isinstance(state, AoIAwareState) else state
        oracle.values[:] = worth

    def play(self, t: int, block: Block, conditions: Conditions | None) -> None:
        """Play a block of rounds, of which the first is t + 1."""
        began = time.thread_time()  # other threads may hold the interpreter
        self.scheduler = reserve(self.scheduler, len(block.states))
        if not isinstance(self.jammer, Still):  # it changes the block, which others play too
            block = Block(block.states.copy(), block.means.copy())
        with explained(self.policy.name):
            broken, alarm = self._play(t, block, conditions)
        if broken:
            raise broken_rule(self.policy.name, broken, self.desk, alarm)
        self.seconds += time.thread_time() - began

    @abstractmethod
    def _play(self, t: int, block: Block, conditions: Conditions | None) -> tuple[int, int]:
        """Run the compiled loop."""


class _PlainPlayer(Player):
    def __init__(self, policy: Policy, game: Game, check: bool = False) -> None:
        super().__init__(policy, game, check)
        self._run = Caller(run_block)
        self.desk = open_desk(game.clients, game.model.n_channels)
        self.tally = open_tally(game.clients, game.checkpoints)
        self._exposure = float(game.rounds * game.clients)

    @property
    def exposure(self) -> float:
        return self._exposure

    def _play(self, t: int, block: Block, conditions: Conditions | None) -> tuple[int, int]:
        states = self.scheduler, self.matching, self.desk, self.tally, self.jammer, self.rng
        played: tuple[int, int] = self._run((*states, *block), t)
        return played


class _FleetPlayer(Player):
    def __init__(self, policy: Policy, game: Game, check: bool = False, *, informed: bool) -> None:
        super().__init__(policy, game, check)
        options, n_channels = game.fleet, game.model.n_channels
        most = options.most(game.clients, n_channels)
        weights = None if options.weights is None else np.array(options.weights)
        self.fleet = open_fleet(
            game.clients,
            n_channels,
            most=most,
            links=policy.scores_links(game.links),
            weights=weights,
            max_delay=options.max_delay,
            proof_of_life=options.proves_life,
        )
        self._run = Caller(run_fleet_block)
        self.desk = self.fleet.desk
        self.truth = open_truth(options, game.clients, most, informed=informed)
        self.tally = open_fleet_tally(game.clients, game.checkpoints)

    @property
    def exposure(self) -> float:
        return float(self.truth.exposure[0])

    def _play(self, t: int, block: Block, conditions: Any) -> tuple[int, int]:
        states = (
            self.scheduler, self.matching, self.fleet, self.truth, self.tally, self.jammer,
            self.rng, _by_client(block, conditions), conditions,
        )  # fmt: skip
        played: tuple[int, int] = self._run(states, t)
        return played


def _by_client(block: Block, conditions: Conditions) -> Block:
    """Return a block with a row for each client, or one for all; missing channels are Bad."""
    states, means = block
    if states.ndim == 2:
        states, means = states[:, None], means[:, None]
    if not conditions.available.all():
        there = conditions.available[:, None]
        states, means = states * there, means * there
    return Block(states, means)
