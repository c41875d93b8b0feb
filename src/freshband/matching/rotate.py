"""Rotation: clients take turns on the ranked channels, line 10 of Algorithm 2."""

from __future__ import annotations

from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from freshband.matching.base import match, rank_channels, register, serve
from freshband.parameters import Parameters
from freshband.states import not_saved


class _RotateState(NamedTuple):
    """Nothing is kept."""

    unused: NDArray[np.int64]  # (0,) a state holds at least one array


not_saved(_RotateState, "unused")


@match.register(_RotateState)
def _match(
    matching: _RotateState,
    t: int,
    chosen: Any,
    scores: Any,
    ages: Any,
    priorities: Any,
    rng: Any,
    assignment: Any,
) -> None:
    rank_channels(matching, t, scores, rng, chosen)
    for client in range(len(chosen)):
        assignment[client] = chosen[(client + 1 + t) % len(chosen)]


@serve.register(_RotateState)
def _serve(
    matching: _RotateState, t: int, ages: Any, priorities: Any, rng: Any, served: Any
) -> None:
    client, filled = t * len(served) % len(ages), 0
    while filled < len(served):
        if ages[client] > 0.0:
            served[filled] = client
            filled += 1
        client = (client + 1) % len(ages)


@register("rotate")
@final
class Rotate(Parameters):
    """Clients take turns: client j gets the `((j + t) mod M)`-th ranked channel.

    Every client has every rank equally often, in a fixed cycle: the printed rule (Algorithm 2, line
    10), which Lemma 3 assumes.

    Notes
    -----
    **Deviations.** Clients and rounds count from 1 and "0-th largest" is read as the largest.
    The cycle runs through a list sorted by quality, so a client gets all bad channels in a row;
    with many clients that is worse than a random matching (erratum E6). With more clients than
    channels they take turns in the order of their numbers.

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

    def start(self, n_clients: int, lot: int = 0) -> _RotateState:
        """Allocate the state."""
        return _RotateState(np.zeros(0, np.int64))
