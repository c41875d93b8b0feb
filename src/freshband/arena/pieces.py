"""A piece of the arena: one policy on all instances of one family."""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from freshband._policy import Policy, parse_policy
from freshband.arena.families import Family
from freshband.simulation._players import enter
from freshband.simulation.monte_carlo import _Plan, _play_run

POINTS: Final = 50  # of a curve


_AGENT: Final = "agent "  # then its name: no policy is written so


def agent_text(name: str) -> str:
    """Return what stands for an agent among policies."""
    return f"{_AGENT}{name}"


class Piece(NamedTuple):
    """What is played: a family by its place, and a policy or agent, or None for the oracle."""

    family: int
    policy: str | None

    @property
    def key(self) -> str:
        """The name under which the piece is kept, other for every text and every version of a file.

        Examples
        --------
        >>> Piece(0, "glr-cucb:paper+aa").key[:17]
        'glr-cucb-paper-aa'
        """
        text = self.policy or "oracle"
        digest = hashlib.sha256(text.encode())
        for each in self._code():
            try:
                source = Path(inspect.getsourcefile(each) or "").read_bytes()
            except (TypeError, OSError):  # of a notebook, say: never taken for the same
                source = os.urandom(8)
            digest.update(source)
        plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
        return f"{plain[:60]}-{digest.hexdigest()[:12]}"

    @property
    def agent(self) -> str | None:
        """The name of the agent, if it is one."""
        text = self.policy or ""
        return text.removeprefix(_AGENT) if text.startswith(_AGENT) else None

    def _code(self) -> list[Any]:
        """Return the classes and functions that decide what the policy does."""
        if self.policy is None:
            return []
        if self.agent is None:
            policy = parse_policy(self.policy)
            return [type(policy.scheduler), type(policy.matching)]
        from freshband.gym import find_agent

        return [find_agent(self.agent)]


@dataclass(frozen=True)
class Contest:
    """Everything that decides what a piece gives, and how long it may take."""

    families: tuple[Family, ...]
    seed: int = 0
    full: bool = False
    runs: int | None = None  # by default those of each family
    rounds: int | None = None
    limit: float = 10.0  # seconds
    stop: threading.Event = field(default_factory=threading.Event, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the stop event, which belongs to this process."""
        given = (self.families, self.seed, self.full, self.runs, self.rounds, self.limit)
        return Contest, given

    def plan(self, family: Family, policies: list[Policy]) -> _Plan:
        """Return the simulation of a family."""
        usual = family.full_runs if self.full else family.runs
        return _Plan(
            model=family.model(),
            policies=policies,
            clients=family.clients,
            rounds=family.rounds if self.rounds is None else min(family.rounds, self.rounds),
            runs=usual if self.runs is None else self.runs,
            seed=self.seed,
            points=POINTS,
            stop=self.stop,
        )

    def config(self, family: Family) -> dict[str, Any]:
        """Return what decides the results of a family, as JSON values."""
        plan = self.plan(family, [])
        told = plan.config() | {"model": repr(plan.model)}
        del told["policies"], told["policy_options"]
        return told


Found = Mapping[str, NDArray[Any]]


def play_piece(contest: Contest, piece: Piece) -> dict[str, NDArray[Any]]:
    """Play a piece; return age curves (runs, points), exposures and seconds, shapes (runs,).

    A policy that would take longer than the limit is not played: its arrays hold no run, but
    ``trial`` holds its seconds per round.
    """
    family = contest.families[piece.family]
    if piece.policy is None:
        plan = contest.plan(family, [])
        curves = [_play_run(plan, run).yardsticks.get("regret") for run in range(plan.runs)]
        return {"age": np.array([curve for curve in curves if curve is not None])}
    if piece.agent is not None:
        return _play_agent(contest, contest.plan(family, []), piece.agent)
    plan = contest.plan(family, [parse_policy(piece.policy)])
    trial = _seconds_per_round(plan)
    slow = trial * plan.rounds * plan.runs > contest.limit
    records = [_play_run(plan, run, yardsticks=False) for run in range(0 if slow else plan.runs)]
    return {
        "age": np.array([record.tallies[0].age_curve for record in records], np.float64),
        "exposure": np.array([record.exposure[0] for record in records]),
        "seconds": np.array([record.seconds[0] for record in records]),
        "trial": np.array([trial]),
    }


def _play_agent(contest: Contest, plan: _Plan, name: str) -> dict[str, NDArray[Any]]:
    """Play an agent on the same instances, in the environment of `freshband.gym`."""
    from freshband.gym import SchedulingEnv, find_agent, play_agent

    agent, few = find_agent(name)(), min(plan.rounds, 500)

    def play(rounds: int, run: int) -> tuple[NDArray[np.int64], float]:
        environment = SchedulingEnv(plan.model, plan.clients, rounds)
        began = time.thread_time()
        return play_agent(agent, environment, plan.seed, run), time.thread_time() - began

    trial = play(few, 0)[1] / few
    runs = 0 if trial * plan.rounds * plan.runs > contest.limit else plan.runs
    played = [play(plan.rounds, run) for run in range(runs)]
    return {
        "age": np.array([np.cumsum(sums)[plan.checkpoints - 1] for sums, _ in played], np.float64),
        "exposure": np.full(runs, float(plan.rounds * plan.clients)),
        "seconds": np.array([seconds for _, seconds in played]),
        "trial": np.array([trial]),
    }


def _seconds_per_round(plan: _Plan) -> float:
    """Compile a policy, then time the first rounds of its first instance."""
    plan.check()
    few = replace(plan, rounds=min(plan.rounds, max(500, plan.rounds // 20)), runs=1)
    game = few.game(0)
    enter(plan.policies[0], game).play(0, *game.nothing())
    return _play_run(few, 0, yardsticks=False).seconds[0] / few.rounds
