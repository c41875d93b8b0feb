"""Age matching: the client with the highest age gets the best channel."""

from __future__ import annotations

from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from freshband.matching.base import (
    pairs_ranks,
    rank_clients,
    register,
    serve,
    serves_urgent,
    sort_clients,
    write_urgency,
)
from freshband.parameters import Parameters
from freshband.ranking import CLIENTS, take_best
from freshband.states import FIXED, between, declare


@serves_urgent
@pairs_ranks
class _AgeState(NamedTuple):
    """The clients in order."""

    clients: NDArray[np.int64]  # (M,)
    lot: NDArray[np.int64]  # (1,) breaks ties differently in every run


declare(_AgeState, clients=between(0, "clients"), lot=FIXED)


@rank_clients.register(_AgeState)
def _rank_clients(matching: _AgeState, t: int, ages: Any, priorities: Any) -> None:
    sort_clients(ages, t, matching.lot[0], matching.clients)


@serve.register(_AgeState)
def _serve(matching: _AgeState, t: int, ages: Any, priorities: Any, rng: Any, served: Any) -> None:
    take_best(ages, t + CLIENTS + matching.lot[0], served)


@write_urgency.register(_AgeState)
def _write_urgency(matching: _AgeState, ages: Any, out: Any) -> None:
    for j in range(len(out)):
        out[j] = ages[j] * (ages[j] + 1.0)


@register("age")
@final
class Age(Parameters):
    """The oldest client gets the best channel, the next oldest the next best, and so on.

    Solves `maximise sum_i a_i(t-1) mean_{k(i)}` over assignments of the chosen channels (by the
    rearrangement inequality), which is the best single step. For two clients with known means it
    was also optimal over the infinite horizon in all cases computed, which is no proof (erratum
    E6). Where a scheduler scores every link separately, it solves `maximise sum_i a_i (a_i + 1)
    score_{i,k(i)}`, an assignment problem.

    Notes
    -----
    **Deviations.** Not in the paper, which rotates. It can lose on bursty channels, where a
    long-run mean says little about the next round.

    Examples
    --------
    >>> from freshband import Coordinator
    >>> coordinator = Coordinator("cucb", n_clients=2, n_channels=2, seed=0)
    >>> for t in range(40):
    ...     plan = coordinator.plan()
    ...     _ = coordinator.observe(plan == 1)
    >>> oldest = int(coordinator.ages.argmax())
    >>> int(coordinator.plan()[oldest])
    1
    """

    def start(self, n_clients: int, lot: int = 0) -> _AgeState:
        """Allocate the state."""
        return _AgeState(np.arange(n_clients), np.array([lot], np.int64))
