"""Random scheduling: the baseline that learns nothing."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from freshband.parameters import Parameters
from freshband.ranking import draw_subset, draw_to_front
from freshband.schedulers.base import Matchings, register, select, select_available
from freshband.schedulers.counts import Counts, learns_means, start_counts
from freshband.states import ORDER, declare

__all__ = ["RandomScheduler", "draw_subset"]


@learns_means
class _RandomState(NamedTuple):
    """A permutation to draw from; only `+age` and `+aa` use the counts."""

    counts: Counts
    deck: NDArray[np.int64]  # (N,) channels, shuffled as they are drawn


declare(_RandomState, deck=ORDER)


@select.register(_RandomState)
def _select(scheduler: _RandomState, t: int, ages: Any, rng: Any, chosen: Any) -> None:
    draw_subset(scheduler.deck, rng, chosen)


@select_available.register(_RandomState)
def _select_available(
    scheduler: _RandomState, t: int, ages: Any, rng: Any, available: Any, scores: Any, chosen: Any
) -> bool:
    draw_to_front(scheduler.deck, rng, 0, len(scheduler.deck))
    place = 0
    for channel in scheduler.deck:
        if available[channel] == 1 and place < len(chosen):
            chosen[place] = channel
            place += 1
    return True


@register("random")
@final
class RandomScheduler(Parameters):
    """Uniformly random channels, matched at random: the paper's baseline.

    Each round every M-subset of the N channels is equally likely.

    Notes
    -----
    Assumes nothing.

    **Deviations.** None.

    Examples
    --------
    >>> from freshband import Coordinator
    >>> coordinator = Coordinator("random", n_clients=2, n_channels=5, seed=0)
    >>> plan = coordinator.plan()
    >>> len(set(plan.tolist()))
    2
    """

    matchings: ClassVar[Matchings] = {"default": "random"}

    def start(
        self, n_clients: int, n_channels: int, rng: np.random.Generator, horizon: int | None
    ) -> _RandomState:
        """Allocate the state."""
        return _RandomState(start_counts(n_clients, n_channels), np.arange(n_channels))
