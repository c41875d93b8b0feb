"""Rotation: clients take turns on the ranked channels, line 10 of Algorithm 2."""

from __future__ import annotations

from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from freshband.matching.base import match, register
from freshband.parameters import Parameters
from freshband.ranking import sort_by

__all__ = ["Rotate", "RotateState"]


class RotateState(NamedTuple):
    """Nothing to remember."""

    unused: NDArray[np.int64]  # (0,) compiled states hold at least one array


@match.register(RotateState)
def _match(
    matching: RotateState,
    t: int,
    chosen: Any,
    scores: Any,
    ages: Any,
    priorities: Any,
    rng: Any,
    assignment: Any,
) -> None:
    sort_by(scores[0], t, chosen)
    n_clients = len(chosen)
    for j in range(n_clients):
        assignment[j] = chosen[(j + 1 + t) % n_clients]


@register("rotate")
@final
class Rotate(Parameters):
    """Clients take turns: client j gets the `((j + t) mod M)`-th ranked channel.

    Equal shares of every rank, in a fixed cycle. It solves no program: it is the printed rule
    (Algorithm 2, line 10) and the one Lemma 3 assumes.

    Notes
    -----
    **Deviations.** Clients and rounds count from 1 and "0-th largest" is read as the largest.
    The cycle runs through a list sorted by quality, so a client meets all bad channels in a row;
    with many clients that is worse than a random matching (erratum E6).

    Examples
    --------
    >>> from freshband import Coordinator
    >>> coordinator = Coordinator("cucb+rotate", n_clients=2, n_channels=2, seed=0)
    >>> plans = []
    >>> for t in range(40):
    ...     plan = coordinator.plan()
    ...     plans.append(plan.tolist())
    ...     _ = coordinator.observe(plan == 0)
    >>> plans[-2:]
    [[0, 1], [1, 0]]
    """

    def start(self, n_clients: int, lot: int = 0) -> RotateState:
        """Allocate the state."""
        return RotateState(np.zeros(0, np.int64))
