"""The contract of schedulers, checked by playing them.

``freshband check FILE.py`` runs these checks on a user's file, the tests of the package on its own
schedulers. A problem is a line of text; a scheduler that keeps the contract has none.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from freshband._jit import READS_ONLY, explained, shut
from freshband._lending import Caller
from freshband._policy import Policy, parse_policy
from freshband._rounds import broken_rule, open_desk, plan_round
from freshband._seeding import Role, generator
from freshband.channels.adversary import start_reacting
from freshband.channels.base import Block, open_air
from freshband.channels.piecewise import Piecewise
from freshband.errors import FreshbandError, shown
from freshband.schedulers.base import means, registry, reveal, update
from freshband.simulation._loop import open_tally, run_block
from freshband.states import reserve

__all__ = [
    "assignment_problems",
    "declaration_problems",
    "log_assignments",
    "plain_problems",
    "scheduler_problems",
]

SIZES: Final = ((1, 1), (1, 6), (4, 4), (3, 7), (17, 19))  # clients and channels to try
_ROUNDS: Final = 120


def scheduler_problems(name: str) -> list[str]:
    """Return what is wrong with a registered scheduler, a line for each problem.

    The scheduler is played as plain Python, which names the line of a mistake, with several numbers
    of clients and channels, and then compiled.

    Examples
    --------
    >>> scheduler_problems("cucb")
    []
    """
    kind = registry[name]
    found = [*declaration_problems(kind)]
    for preset in kind.presets:
        text = name if preset == "default" else f"{name}:{preset}"
        own = [*_policy_problems(text)]
        found += own if text == name else [f"preset {preset!r}: {line}" for line in own]
    return list(dict.fromkeys(found))


def declaration_problems(kind: Any) -> Iterator[str]:
    """Yield what is wrong with the declarations of a scheduler's class."""
    for preset in kind.matchings:
        if preset not in kind.presets:
            yield f"matchings name the preset {preset!r}, which does not exist"
    for preset, values in kind.presets.items():
        try:
            kind(**values)
        except FreshbandError as error:
            yield f"preset {preset!r}: {error}"


def _policy_problems(text: str) -> Iterator[str]:
    """Yield what is wrong with a policy: as plain Python first, then compiled."""
    try:
        policy = parse_policy(text)
    except FreshbandError:
        return  # a problem of the declarations
    for clients, channels in ((2, 5), *SIZES):
        found = plain_problems(policy, clients, channels)
        yield from found.said
        if found.broken:
            return
    yield from _compiled_problems(policy)


class Found(NamedTuple):
    """What playing a policy found, and whether it had to stop."""

    said: list[str]
    broken: bool


def plain_problems(policy: Policy, clients: int, channels: int, rounds: int = _ROUNDS) -> Found:
    """Return what is wrong with a policy that is played as plain Python."""
    said = []
    try:
        for problem in _play_plainly(policy, clients, channels, rounds):
            said.append(problem)  # those before an error count too
    except FreshbandError as error:
        return Found([*said, str(error)], True)
    except Exception as error:  # whatever the user's code raises
        shut_out = isinstance(error, ValueError) and "read-only" in str(error)
        what = READS_ONLY if shut_out else f"{type(error).__name__}: {error}"
        return Found([*said, what + _place(policy, error)], True)
    return Found(said, False)


def _play_plainly(policy: Policy, clients: int, channels: int, rounds: int) -> Iterator[str]:
    rng, air = generator(0, Role.POLICY), _draw(channels, rounds)
    scheduler, matching = policy.start(clients, channels, rng, rounds)
    desk = open_desk(clients, channels, policy.scheduler.client_scores)
    scheduler, silent = reserve(scheduler, rounds), False
    if not means.knows(type(scheduler)) and not policy.scheduler.client_scores:
        yield (
            f"{type(scheduler).__name__} registers no version of 'means', so that '+aa' cannot be "
            "used and fleets assume that half of all transmissions get through"
        )
    for t, states in enumerate(air.states, start=1):
        desk.chosen[:] = -1  # what select does not fill stays so
        reveal(scheduler, shut(air.means[t - 1], scheduler), shut(states, scheduler))
        if not plan_round(scheduler, matching, desk, rng, t):
            raise broken_rule(policy.name, t, desk)
        if np.isnan(desk.scores[:, desk.chosen]).any():
            yield f"'score' wrote {shown(desk.scores.tolist())} in round {t}: NaN has no rank"
            return
        desk.outcome[:] = np.where(desk.assignment >= 0, states[desk.assignment], -1)
        desk.ages[:] = np.where(desk.outcome == 1, 1, desk.ages + 1)
        seen = (shut(each, scheduler) for each in (desk.assignment, desk.outcome, desk.overridden))
        alarm = update(scheduler, t, *seen)
        if alarm is None and not silent:
            silent = True
            yield "'update' returns nothing: end it with 'return -1', or the channel that changed"
        if not -1 <= (alarm or 0) < channels:
            raise broken_rule(policy.name, t, desk, int(alarm))
    rates = np.full(channels, 0.5)
    means(scheduler, rates)
    for rate in rates[~((rates >= 0) & (rates <= 1))][:1]:
        yield f"'means' must write success rates in [0, 1], got {rate}"


def _compiled_problems(policy: Policy) -> Iterator[str]:
    """Yield what is wrong with a policy that is compiled."""
    try:
        air = _draw(5, _ROUNDS)
        compiled, plain = (
            log_assignments(policy, air, 2, engine=engine) for engine in (run_block, _SOURCE)
        )
    except FreshbandError as error:
        yield str(error)
        return
    differ = np.flatnonzero((compiled != plain).any(axis=1))
    if len(differ):
        at = differ[0]
        yield (
            f"compiled and plain runs differ from round {at + 1} on: "
            f"{compiled[at].tolist()} and {plain[at].tolist()}; use "
            "math.log and friends, break ties explicitly, take random numbers from rng alone"
        )
    yield from assignment_problems(compiled, 5)


_SOURCE: Callable[..., Any] = getattr(run_block, "py_func", run_block)  # not compiled


def log_assignments(
    policy: Policy,
    air: Block,
    clients: int,
    *,
    seed: int = 0,
    engine: Callable[..., Any] | None = None,
) -> NDArray[np.int64]:
    """Return the channels that a policy gives to each client in the rounds of a block, (T, M)."""
    rounds, channels = air.states.shape
    rng = generator(seed, Role.POLICY)
    scheduler, matching = policy.start(clients, channels, rng, rounds)
    desk = open_desk(clients, channels, policy.scheduler.client_scores)
    tally = open_tally(clients, np.array([rounds]), logged=rounds)
    scheduler, still = reserve(scheduler, rounds), start_reacting(_air(channels))
    with explained(policy.name):
        play = Caller(run_block if engine is None else engine)
        broken, alarm = play((scheduler, matching, desk, tally, still, rng, *air), 0)
    if broken:
        raise broken_rule(policy.name, broken, desk, alarm)
    return tally.assignment_log


def assignment_problems(log: NDArray[np.int64], channels: int) -> Iterator[str]:
    """Yield the first round of a log, shape (T, M), in which two clients share a channel.

    Examples
    --------
    >>> list(assignment_problems(np.array([[0, 1], [2, 2]]), 3))
    ['round 2: clients need channels of their own from 0 to 2, got [2, 2]']
    """
    ordered = np.sort(log, axis=1)
    shared = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    for at in np.flatnonzero(shared | (ordered[:, 0] < 0) | (ordered[:, -1] >= channels))[:1]:
        yield (
            f"round {at + 1}: clients need channels of their own from 0 to {channels - 1}, "
            f"got {shown(log[at].tolist())}"
        )


def _air(channels: int) -> Piecewise:
    return Piecewise(n_channels=channels, n_breakpoints=2)


def _draw(channels: int, rounds: int) -> Block:
    return open_air(_air(channels), rounds, seed=0).block(rounds)


def _place(policy: Policy, error: Exception) -> str:
    """Return the line of the scheduler's own file in which an error arose."""
    file = inspect.getsourcefile(type(policy.scheduler)) or ""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == file
    ]
    return f" ({Path(file).name}, line {lines[-1]})" if lines else ""
