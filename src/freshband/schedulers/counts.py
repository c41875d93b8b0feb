"""Semi-bandit statistics: the numbers of outcomes and of successes of each channel.

Lifetime means by default (equation (31)); optionally over the last ``window`` rounds, or discounted
by a factor per round (erratum E17).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from freshband._jit import cold, kernel
from freshband.schedulers.base import _StateType, means, ranks_by_means, update, update_late
from freshband.states import FIXED, Moment, between, declare

__all__ = [
    "Counts",
    "absorb",
    "absorb_late",
    "clear",
    "clear_all",
    "keep",
    "learns_means",
    "rounds_counted",
    "start_counts",
]

_UNHEARD = 0.5  # the mean of a channel without outcomes, erratum E17
_FADED = 1e-9  # a discounted count below this counts as 0


class Counts(NamedTuple):
    """Statistics of N channels; W is the window, 0 for none."""

    pulls: NDArray[np.float64]  # (N,) D_k
    wins: NDArray[np.float64]  # (N,) successes
    mean: NDArray[np.float64]  # (N,) wins / pulls
    width: NDArray[np.float64]  # (N,) 1 / sqrt(D_k), stored because roots are slow
    ring_channel: NDArray[np.int64]  # (W, M) channels played in the last W rounds
    ring_outcome: NDArray[np.int8]  # (W, M) their outcomes, -1 for none
    discount: NDArray[np.float64]  # (1,) factor per round, 1 for none


def _have_channels(counts: Counts, at: Moment) -> bool:
    """Whether every outcome in the window belongs to a channel."""
    return bool(((counts.ring_channel >= 0) | (counts.ring_outcome < 0)).all())


declare(
    Counts,
    ring_channel=between(-1, "pulls"),
    ring_outcome=between(-1, 1),
    discount=FIXED,
    invariant=_have_channels,
)


def start_counts(
    n_clients: int, n_channels: int, window: int | None = None, discount: float | None = None
) -> Counts:
    """Allocate empty statistics."""
    rows = window or 0
    return Counts(
        pulls=np.zeros(n_channels),
        wins=np.zeros(n_channels),
        mean=np.full(n_channels, _UNHEARD),
        width=np.full(n_channels, np.inf),
        ring_channel=np.full((rows, n_clients), -1, np.int64),
        ring_outcome=np.full((rows, n_clients), -1, np.int8),
        discount=np.array([1.0 if discount is None else discount]),
    )


@kernel
def _refresh(counts: Any, channel: int) -> None:
    pulls = counts.pulls[channel]
    if pulls > _FADED:
        counts.mean[channel] = counts.wins[channel] / pulls
        counts.width[channel] = 1.0 / math.sqrt(pulls)
    else:
        clear(counts, channel)


@kernel
def rounds_counted(counts: Any, elapsed: int) -> float:
    """Return how many of the last rounds count: all, those in the window, or their discounts."""
    rounds = float(elapsed)
    if len(counts.ring_outcome) > 0:
        rounds = min(rounds, float(len(counts.ring_outcome)))
    discount = counts.discount[0]
    if discount < 1.0:
        rounds = (1.0 - math.pow(discount, rounds)) / (1.0 - discount)
    return rounds


@kernel
def absorb(counts: Any, t: int, assignment: Any, outcome: Any) -> None:
    """Count one round's acknowledgements; unknown outcomes and idle clients are skipped."""
    discount = counts.discount[0]
    if discount < 1.0:
        for channel in range(len(counts.pulls)):
            counts.pulls[channel] *= discount
            counts.wins[channel] *= discount
            _refresh(counts, channel)
    window = len(counts.ring_outcome)
    if window > 0:
        row = t % window
        faded = math.pow(discount, float(window))  # the remaining weight of a pull that old
        for j in range(len(assignment)):
            gone = counts.ring_outcome[row, j]
            if gone >= 0:
                channel = counts.ring_channel[row, j]
                counts.pulls[channel] -= faded
                counts.wins[channel] -= faded * gone
                _refresh(counts, channel)
            known = assignment[j] >= 0 and outcome[j] >= 0
            counts.ring_channel[row, j] = assignment[j]
            counts.ring_outcome[row, j] = outcome[j] if known else -1
    for j in range(len(assignment)):
        channel = assignment[j]
        if channel >= 0 and outcome[j] >= 0:
            counts.pulls[channel] += 1.0
            counts.wins[channel] += outcome[j]
            _refresh(counts, channel)


@cold
def absorb_late(counts: Any, t: int, when: int, channel: int, outcome: int) -> None:
    """Count an outcome of round ``when`` as round ``t`` left it: discounted, or out of window."""
    window = len(counts.ring_outcome)
    if window > 0:
        if t - when >= window:
            return
        row = when % window
        place = -1
        for j in range(counts.ring_outcome.shape[1]):
            if counts.ring_channel[row, j] == channel and counts.ring_outcome[row, j] < 0:
                place = j
        if place < 0:
            return  # without a place in the window it would never leave it
        counts.ring_outcome[row, place] = outcome
    weight = math.pow(counts.discount[0], float(t - when))
    counts.pulls[channel] += weight
    counts.wins[channel] += weight * outcome
    _refresh(counts, channel)


@kernel
def clear(counts: Any, channel: int) -> None:
    """Forget one channel, except for its entries in a window."""
    keep(counts, channel, 0.0, 0.0)


@kernel
def keep(counts: Any, channel: int, pulls: float, wins: float) -> None:
    """Replace the counts of one channel."""
    counts.pulls[channel] = pulls
    counts.wins[channel] = wins
    if pulls > 0.0:
        counts.mean[channel] = wins / pulls
        counts.width[channel] = 1.0 / math.sqrt(pulls)
    else:
        counts.mean[channel] = _UNHEARD
        counts.width[channel] = math.inf


@kernel
def clear_all(counts: Any) -> None:
    """Forget every channel and the window."""
    for channel in range(len(counts.pulls)):
        clear(counts, channel)
    for row in range(len(counts.ring_outcome)):
        for j in range(counts.ring_outcome.shape[1]):
            counts.ring_outcome[row, j] = -1


def keeps_means(state_type: _StateType) -> _StateType:
    """Rank by the means in a state's field ``counts``, which it updates itself (decorator)."""

    @means.register(state_type)
    def _means(scheduler: Any, out: Any) -> None:
        for channel in range(len(out)):
            out[channel] = scheduler.counts.mean[channel]

    return ranks_by_means(state_type)


def learns_means(state_type: _StateType) -> _StateType:
    """Let a state with a field ``counts`` learn means, and rank by them (class decorator)."""

    @update.register(state_type)
    def _update(scheduler: Any, t: int, assignment: Any, outcome: Any, overridden: Any) -> int:
        absorb(scheduler.counts, t, assignment, outcome)
        return -1

    @update_late.register(state_type)
    def _update_late(
        scheduler: Any, t: int, when: int, client: int, channel: int, outcome: int
    ) -> int:
        absorb_late(scheduler.counts, t, when, channel, outcome)
        return -1

    return keeps_means(state_type)
