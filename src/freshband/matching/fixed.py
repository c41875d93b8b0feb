"""Fixed matching: client 0 always gets the best channel, the last client the worst."""

from __future__ import annotations

from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from freshband.matching.base import pairs_ranks, register, serve
from freshband.parameters import Parameters
from freshband.states import not_saved


@pairs_ranks
class _FixedState(NamedTuple):
    """The clients in order."""

    clients: NDArray[np.int64]  # (M,)


not_saved(_FixedState, "clients")


@serve.register(_FixedState)
def _serve(
    matching: _FixedState, t: int, ages: Any, priorities: Any, rng: Any, served: Any
) -> None:
    client, filled = 0, 0
    while filled < len(served):
        if ages[client] > 0.0:
            served[filled] = client
            filled += 1
        client += 1


@register("fixed")
@final
class Fixed(Parameters):
    """Client j always gets the j-th ranked channel.

    The assignment of equation (27) in the proof of Lemma 3: unfair, and only for comparison.
    With more clients than channels the last clients never send.

    Notes
    -----
    **Deviations.** None.

    Examples
    --------
    >>> from freshband import Coordinator
    >>> coordinator = Coordinator("cucb+fixed", n_clients=2, n_channels=2, seed=0)
    >>> for t in range(40):
    ...     plan = coordinator.plan()
    ...     _ = coordinator.observe(plan == 1)
    >>> plan.tolist()
    [1, 0]
    """

    def start(self, n_clients: int, lot: int = 0) -> _FixedState:
        """Allocate the state."""
        return _FixedState(np.arange(n_clients))
