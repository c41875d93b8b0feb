"""Random matching: chosen channels are given to clients at random."""

from __future__ import annotations

from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from freshband.matching.base import match, rank_channels, register, serve
from freshband.parameters import Parameters
from freshband.ranking import draw_subset, draw_to_front
from freshband.states import not_saved


class _RandomMatchingState(NamedTuple):
    """Nothing is kept."""

    unused: NDArray[np.int64]  # (0,) a state holds at least one array


not_saved(_RandomMatchingState, "unused")


@rank_channels.register(_RandomMatchingState)
def _rank_channels(
    matching: _RandomMatchingState, t: int, scores: Any, rng: Any, chosen: Any
) -> None:
    draw_to_front(chosen, rng, 0, len(chosen))


@match.register(_RandomMatchingState)
def _match(
    matching: _RandomMatchingState,
    t: int,
    chosen: Any,
    scores: Any,
    ages: Any,
    priorities: Any,
    rng: Any,
    assignment: Any,
) -> None:
    draw_subset(chosen, rng, assignment[: len(chosen)])


@serve.register(_RandomMatchingState)
def _serve(
    matching: _RandomMatchingState, t: int, ages: Any, priorities: Any, rng: Any, served: Any
) -> None:
    left = 0
    for client in range(len(ages)):
        left += ages[client] > 0.0
    filled = 0
    for client in range(len(ages)):  # Knuth's algorithm S: every subset is equally likely
        if ages[client] > 0.0:
            if rng.random() * left < len(served) - filled:
                served[filled] = client
                filled += 1
            left -= 1


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
        return _RandomMatchingState(np.zeros(0, np.int64))
