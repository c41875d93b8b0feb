"""Outcomes that repeat: counted by their place in a period of unknown length, for `bayes`.

What blocks a channel at regular times repeats after some number of rounds. Nobody knows which: for
each channel, P lengths are compared by how well they predict. Every number from 2 to 16 divides one
of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from freshband._jit import kernel
from freshband.states import between, declare, newer

_SHORTEST, _LONGEST = 9, 16  # rounds in a period; what repeats sooner repeats after these as well
_LENGTHS = _LONGEST - _SHORTEST + 1  # loops over a constant are unrolled, and divide by constants
_PERIODS = np.arange(2, _LONGEST + 1)
_DIVIDES = (np.arange(_SHORTEST, _LONGEST + 1)[:, None] % _PERIODS == 0).astype(np.float64)
_MOST = 64.0  # outcomes in a place; then they are halved, so that it follows changes
_CLOSENESS = 2.0  # outcomes that the rate of the channel counts for in each place


class Periods(NamedTuple):
    """Counts of losses and successes by place, and the belief in each length."""

    belief: NDArray[np.float64]  # (N, P) rows sum to 1
    counts: NDArray[np.float64]  # (N, P, longest, 2)
    totals: NDArray[np.float64]  # (N, 2) in all places


newer(Periods, "belief", "counts", "totals")
declare(Periods, belief=between(0, 1), counts=between(0), totals=between(0))


def start_periods(n_channels: int) -> Periods:
    """Return periods without outcomes, all equally likely."""
    return Periods(
        belief=np.full((n_channels, _LENGTHS), 1.0 / _LENGTHS),
        counts=np.zeros((n_channels, _LENGTHS, _LONGEST, 2)),
        totals=np.zeros((n_channels, 2)),
    )


@kernel
def _known(totals: Any, channel: int) -> float:
    """Return what the rate of the channel adds to the successes in each place."""
    losses, wins = totals[channel, 0], totals[channel, 1]
    return float(_CLOSENESS * (wins + 1.0) / (losses + wins + 2.0))


@kernel
def expect_repeated(periods: Any, channel: int, t: int) -> tuple[float, float]:
    """Return the expected success rate of a channel in round ``t``, and its square."""
    belief, counts = periods.belief[channel], periods.counts
    known = _known(periods.totals, channel)
    mean, square = 0.0, 0.0
    for p in range(_LENGTHS):
        place = t % (_SHORTEST + p)
        wins = counts[channel, p, place, 1] + known
        tries = counts[channel, p, place, 0] + counts[channel, p, place, 1] + _CLOSENESS
        rate = wins / tries
        mean += belief[p] * rate
        square += belief[p] * rate * (wins + 1.0) / (tries + 1.0)
    return mean, square


@kernel
def _kept(outcomes: float) -> float:
    """Return the share of so many outcomes that goes on counting."""
    return 0.5 if outcomes >= _MOST else 1.0


@kernel
def note_repeated(periods: Any, channel: int, t: int, outcome: int) -> float:
    """Count an outcome of round ``t``; return how likely it was."""
    belief, counts, totals = periods.belief[channel], periods.counts, periods.totals
    known = _known(totals, channel)
    likelihood = 0.0
    for p in range(_LENGTHS):
        place = t % (_SHORTEST + p)
        losses, wins = counts[channel, p, place, 0], counts[channel, p, place, 1]
        rate = (wins + known) / (losses + wins + _CLOSENESS)
        belief[p] *= rate if outcome == 1 else 1.0 - rate
        likelihood += belief[p]
        kept = _kept(losses + wins + 1.0)
        counts[channel, p, place, 0] = kept * (losses + (1.0 - outcome))
        counts[channel, p, place, 1] = kept * (wins + outcome)
    scale = 1.0 / likelihood
    for p in range(_LENGTHS):
        belief[p] *= scale
    losses, wins = totals[channel, 0], totals[channel, 1]
    kept = _kept(losses + wins + 1.0)
    totals[channel, 0] = kept * (losses + (1.0 - outcome))
    totals[channel, 1] = kept * (wins + outcome)
    return likelihood


@kernel
def forget_periods(periods: Any, forget: float) -> None:
    """Give back a share of the belief to all lengths evenly."""
    for channel in range(len(periods.belief)):
        belief = periods.belief[channel]
        for p in range(_LENGTHS):
            belief[p] = (1.0 - forget) * belief[p] + forget / _LENGTHS


def believed_periods(periods: Periods, trust: float) -> NDArray[np.int64]:
    """Return the period of each channel, for people; 0 where none is believed above 1/2.

    Of several that fit, such as 2 and 4, the longest; one that is shorter than the lengths that are
    compared may be found as a multiple of it.
    """
    fits = trust * (periods.belief @ _DIVIDES) > 0.5
    longest = _PERIODS[::-1][fits[:, ::-1].argmax(axis=1)]
    return np.where(fits.any(axis=1), longest, 0)
