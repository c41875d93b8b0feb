"""Outcomes counted by what came before them: for `bayes`, on air with a memory.

The context of an outcome is how many rounds ago its channel was last heard, and whether that was a
success. Bursts, periodic blocking and a jammer that follows the clients all show in such counts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from freshband._jit import kernel
from freshband.states import FLAGS, between, declare

_GAPS = 8  # rounds since last heard: 1 to 7, or more
_LONGER = (8, 11, 16, 22, 31, 43, 61, 85, 120)  # kinds of more: from so many rounds on
_KIND = np.searchsorted(_LONGER, np.arange(_LONGER[-1] + 1), "right") - 1  # of a number of rounds
_ENOUGH = 8  # outcomes in a context before it predicts anything
_MOST = 1024.0  # outcomes in a context; then all are halved, so that it follows changes
_CLOSENESS = 2.0  # outcomes that the rate of all channels counts for in a channel's own context
_LIKENESS = 8.0  # outcomes that the rate after any long gap counts for in a kind of it


class Contexts(NamedTuple):
    """Counts of losses and successes; X contexts."""

    shared: NDArray[np.float64]  # (X + Y, 2) over all channels, then by Y kinds of long gaps
    own: NDArray[np.float64]  # (N, X, 2)
    last: NDArray[np.int64]  # (N,) the last outcome of a channel
    heard: NDArray[np.int64]  # (N,) its round, 0 for none


declare(Contexts, shared=between(0), own=between(0), last=FLAGS, heard=between(0, "round"))


def start_contexts(n_channels: int) -> Contexts:
    """Return contexts without outcomes."""
    return Contexts(
        shared=np.zeros((2 * _GAPS + 2 * len(_LONGER), 2)),
        own=np.zeros((n_channels, 2 * _GAPS, 2)),
        last=np.zeros(n_channels, np.int64),
        heard=np.zeros(n_channels, np.int64),
    )


@kernel
def _place(contexts: Any, channel: int, t: int) -> int:
    gap = min(max(t - contexts.heard[channel], 1), _GAPS)
    return int(2 * (gap - 1) + contexts.last[channel])


@kernel
def _place_of_long_gap(contexts: Any, channel: int, t: int) -> int:
    """Return the place of the kind of a long gap, or -1 after a short one."""
    gap = t - contexts.heard[channel]
    if gap < _GAPS:
        return -1
    return int(2 * (_GAPS + _KIND[min(gap, _LONGER[-1])]) + contexts.last[channel])


@kernel
def context_of(contexts: Any, channel: int, t: int) -> int:
    """Return the context of a channel in round ``t``, or -1 if it predicts nothing yet."""
    if contexts.heard[channel] == 0:
        return -1
    context = _place(contexts, channel, t)
    if contexts.shared[context, 0] + contexts.shared[context, 1] < _ENOUGH:
        return -1
    return context


@kernel
def expect_shared(contexts: Any, channel: int, context: int, t: int) -> tuple[float, float]:
    """Return the expected success rate in the context of a channel, and its square."""
    wins = contexts.shared[context, 1] + 1.0
    total = wins + contexts.shared[context, 0] + 1.0
    kind = _place_of_long_gap(contexts, channel, t)
    if kind >= 0:
        wins = contexts.shared[kind, 1] + _LIKENESS * wins / total
        total = contexts.shared[kind, 0] + contexts.shared[kind, 1] + _LIKENESS
    return wins / total, wins / total * (wins + 1.0) / (total + 1.0)


@kernel
def expect_own(contexts: Any, channel: int, context: int, shared: float) -> tuple[float, float]:
    """Return the same from what a channel did itself; all long gaps are one."""
    wins = contexts.own[channel, context, 1] + _CLOSENESS * shared
    total = contexts.own[channel, context, 0] + contexts.own[channel, context, 1] + _CLOSENESS
    return wins / total, wins / total * (wins + 1.0) / (total + 1.0)


@kernel
def _add(counts: Any, outcome: int) -> None:
    counts[outcome] += 1.0
    if counts[0] + counts[1] >= _MOST:
        counts[0] *= 0.5
        counts[1] *= 0.5


@kernel
def note(contexts: Any, channel: int, t: int, outcome: int) -> None:
    """Count an outcome of round ``t``."""
    if contexts.heard[channel] > 0:
        context = _place(contexts, channel, t)
        _add(contexts.shared[context], outcome)
        _add(contexts.own[channel, context], outcome)
        kind = _place_of_long_gap(contexts, channel, t)
        if kind >= 0:
            _add(contexts.shared[kind], outcome)
    contexts.heard[channel] = t
    contexts.last[channel] = outcome
