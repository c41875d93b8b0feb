"""Index policies: one optimistic number a channel, play the M largest.

A state that follows this shape (fields ``counts``, ``values`` and ``key``) only has to say how its
index is computed, by registering `evaluate`; `plays_largest_index` gives it the scheduler verbs.
Restarting schedulers hold such a state and call `evaluate` themselves.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from freshband._jit import kernel, verb
from freshband.ranking import take_best
from freshband.schedulers.base import means, score, select, update
from freshband.schedulers.counts import absorb

__all__ = ["KEYS", "evaluate", "is_index", "key_code", "plays_largest_index", "write_key"]

KEYS = ("mean", "index")  # ranking key of the chosen channels: (31) or (30)

StateType = TypeVar("StateType", bound=type)


def key_code(channel_key: str) -> NDArray[np.int64]:
    """Return the array a state keeps its ranking key in."""
    return np.array([KEYS.index(channel_key)], np.int64)


@verb
def evaluate(index: Any, elapsed: int, rng: Any) -> None:
    """Compute every channel's index into ``index.values``; ``elapsed`` >= 1 is t - τ."""


@kernel
def write_key(index: Any, scores: Any) -> None:
    """Write the ranking key: historical mean (31), or the index (30)."""
    values = index.values if index.key[0] == 1 else index.counts.mean
    for channel in range(len(values)):
        scores[0, channel] = values[channel]


def plays_largest_index(state_type: StateType) -> StateType:
    """Give an index state the verbs of a scheduler (class decorator)."""

    @select.register(state_type)
    def _select(scheduler: Any, t: int, ages: Any, rng: Any, chosen: Any) -> None:
        evaluate(scheduler, t, rng)
        take_best(scheduler.values, t, chosen)

    @score.register(state_type)
    def _score(scheduler: Any, t: int, scores: Any) -> None:
        write_key(scheduler, scores)

    @means.register(state_type)
    def _means(scheduler: Any, out: Any) -> None:
        for channel in range(len(out)):
            out[channel] = scheduler.counts.mean[channel]

    @update.register(state_type)
    def _update(scheduler: Any, t: int, assignment: Any, outcome: Any, overridden: Any) -> int:
        absorb(scheduler.counts, t, assignment, outcome)
        return -1

    _index_states.add(state_type)
    return state_type


_index_states: set[type] = set()


def is_index(state: object) -> bool:
    """Whether a state is that of an index policy."""
    return type(state) in _index_states
