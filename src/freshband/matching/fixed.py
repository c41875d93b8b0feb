"""Fixed matching: client 0 always gets the best channel, the last client the worst."""

from __future__ import annotations

from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from freshband.matching.base import match, register
from freshband.parameters import Parameters
from freshband.ranking import sort_by

__all__ = ["Fixed", "FixedState"]


class FixedState(NamedTuple):
    """Nothing to remember."""

    unused: NDArray[np.int64]  # (0,) compiled states hold at least one array


@match.register(FixedState)
def _match(
    matching: FixedState,
    t: int,
    chosen: Any,
    scores: Any,
    ages: Any,
    priorities: Any,
    rng: Any,
    assignment: Any,
) -> None:
    sort_by(scores[0], t, chosen)
    for j in range(len(chosen)):
        assignment[j] = chosen[j]


@register("fixed")
@final
class Fixed(Parameters):
    """Client j always gets the j-th ranked channel.

    The assignment of equation (27) in the proof of Lemma 3. It maximises nothing over time and is
    unfair on purpose: a yardstick.

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

    def start(self, n_clients: int, lot: int = 0) -> FixedState:
        """Allocate the state."""
        return FixedState(np.zeros(0, np.int64))
