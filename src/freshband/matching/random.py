"""Random matching: chosen channels are dealt out by lot."""

from __future__ import annotations

from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from freshband.matching.base import match, register
from freshband.parameters import Parameters

__all__ = ["Random", "RandomMatchingState"]


class RandomMatchingState(NamedTuple):
    """Nothing to remember."""

    unused: NDArray[np.int64]  # (0,) compiled states hold at least one array


@match.register(RandomMatchingState)
def _match(
    matching: RandomMatchingState,
    t: int,
    chosen: Any,
    scores: Any,
    ages: Any,
    priorities: Any,
    rng: Any,
    assignment: Any,
) -> None:
    n_clients = len(chosen)
    for j in range(n_clients):
        other = j + int(rng.random() * (n_clients - j))
        chosen[j], chosen[other] = chosen[other], chosen[j]
        assignment[j] = chosen[j]


@register("random")
@final
class Random(Parameters):
    """Chosen channels are dealt out uniformly at random.

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

    def start(self, n_clients: int, lot: int = 0) -> RandomMatchingState:
        """Allocate the state."""
        return RandomMatchingState(np.zeros(0, np.int64))
