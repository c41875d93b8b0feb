"""Random matching: chosen channels are given to clients at random."""

from __future__ import annotations

from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from freshband.matching.base import pairs_ranks, rank_channels, register
from freshband.parameters import Parameters
from freshband.ranking import draw_to_front
from freshband.states import not_saved

__all__ = ["RandomMatching"]


@pairs_ranks
class _RandomMatchingState(NamedTuple):
    """The clients in order."""

    clients: NDArray[np.int64]  # (M,)


not_saved(_RandomMatchingState, "clients")


@rank_channels.register(_RandomMatchingState)
def _rank_channels(
    matching: _RandomMatchingState, t: int, scores: Any, rng: Any, chosen: Any
) -> None:
    draw_to_front(chosen, rng, 0, len(chosen))


@register("random")
@final
class RandomMatching(Parameters):
    """Chosen channels are given to clients uniformly at random.

    Every permutation is equally likely: the paper's baseline matching.

    Notes
    -----
    **Deviations.** None.

    Examples
    --------
    >>> from freshband import Coordinator
    >>> coordinator = Coordinator("cucb+random", n_clients=3, n_channels=3, seed=0)
    >>> sorted(coordinator.plan().tolist())
    [0, 1, 2]
    """

    def start(self, n_clients: int, lot: int = 0) -> _RandomMatchingState:
        """Allocate the state."""
        return _RandomMatchingState(np.arange(n_clients))
