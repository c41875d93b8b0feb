"""Index policies: compute one optimistic number per channel and play the M largest.

A state with the fields ``counts``, ``values`` and ``key`` only has to register `evaluate`, which
computes its index; `plays_largest_index` gives it the verbs of a scheduler.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from freshband._jit import kernel, verb
from freshband.parameters import Parameters
from freshband.ranking import take_available, take_best
from freshband.schedulers.base import _StateType, score, select, select_available
from freshband.schedulers.counts import learns_means, start_counts

_KEYS = ("mean", "index")  # ranking key of the chosen channels: (31) or (30)


class Index(Parameters):
    """Hyper-parameters of every index policy."""

    state_type: ClassVar[type]  # with the fields ``counts``, ``values``, ``key`` and `own_arrays`

    channel_key: Literal["mean", "index"] = "mean"

    def own_arrays(self) -> dict[str, Any]:
        """Return further fields of the state."""
        return {}

    def memory(self, horizon: int | None) -> tuple[int | None, float | None]:
        """Return how much of the past counts: a window or None, and a discount or None."""
        return None, None

    def start(
        self, n_clients: int, n_channels: int, rng: np.random.Generator, horizon: int | None
    ) -> Any:
        """Allocate the state."""
        return self.state_type(
            counts=start_counts(n_clients, n_channels, *self.memory(horizon)),
            values=np.zeros(n_channels),
            key=np.array([_KEYS.index(self.channel_key)], np.int64),
            **self.own_arrays(),
        )


class IndexParameters(Index):
    """Hyper-parameters of an index policy that may also forget, by a window or a discount."""

    mean_window: int | None = Field(default=None, ge=1)
    discount: float | None = Field(default=None, gt=0, lt=1)

    def memory(self, horizon: int | None) -> tuple[int | None, float | None]:
        """Return the window and the discount."""
        return self.mean_window, self.discount


@verb
def evaluate(index: Any, elapsed: int, rng: Any) -> None:
    """Compute every channel's index into ``index.values``; ``elapsed`` >= 1 is t - τ."""


@verb
def note_choice(scheduler: Any, t: int, chosen: Any) -> None:
    """Note the channels chosen for a round; by default nothing."""


@kernel
def write_key(index: Any, scores: Any) -> None:
    """Write the ranking key: historical mean (31), or the index (30)."""
    values = index.values if index.key[0] == 1 else index.counts.mean
    for channel in range(len(values)):
        scores[0, channel] = values[channel]


def plays_largest(state_type: _StateType) -> _StateType:
    """Let a state that registers `evaluate` play the largest values (class decorator)."""

    @select.register(state_type)
    def _select(scheduler: Any, t: int, ages: Any, rng: Any, chosen: Any) -> None:
        evaluate(scheduler, t, rng)
        take_best(scheduler.values, t, chosen)
        note_choice(scheduler, t, chosen)

    @select_available.register(state_type)
    def _select_available(
        scheduler: Any, t: int, ages: Any, rng: Any, available: Any, scores: Any, chosen: Any
    ) -> bool:
        evaluate(scheduler, t, rng)
        take_available(scheduler.values, t, available, chosen)
        note_choice(scheduler, t, chosen)
        return True

    return state_type


def plays_largest_index(state_type: _StateType) -> _StateType:
    """Give an index state the verbs of a scheduler (class decorator)."""
    learns_means(state_type)
    plays_largest(state_type)

    @score.register(state_type)
    def _score(scheduler: Any, t: int, scores: Any) -> None:
        write_key(scheduler, scores)

    return state_type
