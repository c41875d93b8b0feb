"""Policies that draw a set of M channels such that each is in it with a given probability.

A *scheme*, a state of its own, computes these probabilities, the *marginals*, and learns from
outcomes divided by them. The set is drawn by dependent rounding (DepRound): two marginals strictly
between 0 and 1 are moved in opposite directions, at random and without bias, until one of them is 0
or 1, and so on. Only the marginals matter, because every channel has an outcome of its own.

Reference: Gandhi, Khuller, Parthasarathy, Srinivasan, "Dependent rounding and its applications to
approximation algorithms", J. ACM 2006.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from freshband._jit import cold, kernel, verb
from freshband.ranking import take_best
from freshband.schedulers.base import select, select_available, update, update_late
from freshband.schedulers.counts import Counts, absorb, absorb_late, keeps_means, start_counts
from freshband.states import FIXED, between, declare

_REMEMBERED = 64  # rounds whose marginals are kept, for outcomes that come late
_EDGE = 1e-12  # a marginal this close to 0 or 1 is not rounded any further


@keeps_means
class MarginalsState(NamedTuple):
    """A scheme, and the marginals of the last rounds."""

    counts: Counts  # historical means, which rank the chosen channels
    scheme: Any
    chance: NDArray[np.float64]  # (_REMEMBERED, N) by round, modulo their number
    rounded: NDArray[np.float64]  # (N,)
    offered: NDArray[np.int8]  # (N,) 1: what `select` has to choose from


declare(MarginalsState, chance=between(0, 2), rounded=between(-np.inf), offered=FIXED)


def start_marginals(
    scheme: Any, n_clients: int, n_channels: int, discount: float | None
) -> MarginalsState:
    """Allocate the state of a policy; the historical means fade by ``discount`` per round."""
    return MarginalsState(
        counts=start_counts(n_clients, n_channels, discount=discount),
        scheme=scheme,
        chance=np.zeros((_REMEMBERED, n_channels)),
        rounded=np.zeros(n_channels),
        offered=np.ones(n_channels, np.int8),
    )


@verb
def spread(scheme: Any, t: int, offered: Any, size: int, marginals: Any) -> None:
    """Write the marginals of the offered channels: in (0, 1], with the sum ``size``."""


@verb
def credit(scheme: Any, t: int, channel: int, outcome: int, chance: float) -> None:
    """Learn one outcome of a channel that was chosen with probability ``chance``."""


@verb
def close(scheme: Any, t: int) -> None:
    """End a round, after its outcomes."""


@cold
def _draw(state: Any, t: int, rng: Any, offered: Any, chosen: Any) -> None:
    marginals = state.chance[t % len(state.chance)]
    free = 0
    for channel in range(len(offered)):
        marginals[channel] = 0.0
        free += offered[channel]
    if free == len(chosen):
        for channel in range(len(offered)):
            marginals[channel] = offered[channel]
    else:
        spread(state.scheme, t, offered, len(chosen), marginals)
    dep_round(marginals, rng, state.rounded)
    take_best(state.rounded, t, chosen)


@cold
def dep_round(marginals: Any, rng: Any, rounded: Any) -> None:
    """Round marginals to 1 or 0 without changing their sum or any expectation.

    Entries that must stay 0 are written as -1, so that the largest entries are always allowed; what
    arithmetic loses of the sum remains in one entry.
    """
    held = -1  # the entry that is not rounded yet
    for k in range(len(marginals)):
        rounded[k] = marginals[k] if marginals[k] > 0.0 else -1.0
        if rounded[k] <= _EDGE or rounded[k] >= 1.0 - _EDGE:
            continue
        if held < 0:
            held = k
            continue
        one, other = rounded[held], rounded[k]
        up, down = min(1.0 - one, other), min(one, 1.0 - other)
        if rng.random() * (up + down) < down:
            one, other = one + up, other - up
        else:
            one, other = one - down, other + down
        rounded[held] = one
        rounded[k] = other
        if one <= _EDGE or one >= 1.0 - _EDGE:
            held = k if _EDGE < other < 1.0 - _EDGE else -1


@select.register(MarginalsState)
def _select(scheduler: MarginalsState, t: int, ages: Any, rng: Any, chosen: Any) -> None:
    _draw(scheduler, t, rng, scheduler.offered, chosen)


@select_available.register(MarginalsState)
def _select_available(
    scheduler: MarginalsState, t: int, ages: Any, rng: Any, available: Any, scores: Any, chosen: Any
) -> bool:
    _draw(scheduler, t, rng, available, chosen)
    return True


@kernel
def _credit(state: Any, t: int, when: int, channel: int, outcome: int) -> None:
    chance = state.chance[when % len(state.chance), channel]
    if chance > 0.0:
        credit(state.scheme, t, channel, outcome, chance)


@update.register(MarginalsState)
def _update(
    scheduler: MarginalsState, t: int, assignment: Any, outcome: Any, overridden: Any
) -> int:
    absorb(scheduler.counts, t, assignment, outcome)
    jumped = 0
    for j in range(len(assignment)):
        jumped += overridden[j]
    for j in range(len(assignment)):
        if assignment[j] >= 0 and outcome[j] >= 0 and jumped == 0:  # drawn with these marginals
            _credit(scheduler, t, t, assignment[j], outcome[j])
    close(scheduler.scheme, t)
    return -1


@update_late.register(MarginalsState)
def _update_late(
    scheduler: MarginalsState, t: int, when: int, client: int, channel: int, outcome: int
) -> int:
    absorb_late(scheduler.counts, t, when, channel, outcome)
    if t - when < len(scheduler.chance) - 1:  # the next round may be planned already
        _credit(scheduler, t, when, channel, outcome)
    return -1
