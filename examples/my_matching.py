"""Your own matching in one file: the youngest client first.

freshband --import examples/my_matching.py simulate --policies glr-cucb,glr-cucb+youngest
"""

from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from freshband.matching.base import match, register
from freshband.parameters import Parameters
from freshband.ranking import CLIENTS, sort_by

__all__ = ["Youngest", "YoungestState"]


class YoungestState(NamedTuple):
    """Scratch space for sorting; the name of the class must be unique."""

    clients: NDArray[np.int64]  # (M,)


@match.register(YoungestState)
def _match(
    matching: YoungestState,
    t: int,
    chosen: Any,
    scores: Any,
    ages: Any,
    priorities: Any,
    rng: Any,
    assignment: Any,
) -> None:
    sort_by(scores[0], t, chosen)  # the best channel first
    clients = matching.clients
    for j in range(len(clients)):
        clients[j] = j
    sort_by(ages, t + CLIENTS, clients)  # the oldest first; ties are broken by the round
    for rank in range(len(clients)):
        assignment[clients[len(clients) - 1 - rank]] = chosen[rank]


@register("youngest")
@final
class Youngest(Parameters):
    """The client with the freshest update gets the best channel, which is as unfair as possible.

    Notes
    -----
    **Deviations.** Not in the paper.

    Examples
    --------
    >>> import freshband
    >>> result = freshband.simulate(
    ...     "stationary", ["cucb+age", "cucb+youngest"], clients=3, rounds=2000, runs=3
    ... )
    >>> mean = result.cumulative_variance.mean("run")
    >>> bool(mean.sel(policy="cucb+youngest") > mean.sel(policy="cucb+age"))
    True
    """

    def start(self, n_clients: int, lot: int = 0) -> YoungestState:
        """Allocate the state; `lot`, drawn once per run, may break ties."""
        return YoungestState(np.arange(n_clients))
