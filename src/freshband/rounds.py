"""One round of the server: plan, then observe.

These two kernels are the round wherever it runs: the coordinator calls them one at a time, the
simulator inside its fused loop.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from freshband._jit import kernel
from freshband.matching.base import match
from freshband.schedulers.base import override, score, select, update

__all__ = ["Desk", "observe_round", "open_desk", "plan_round"]


class Desk(NamedTuple):
    """What lies on the server's desk during a round, for M clients and N channels."""

    ages: NDArray[np.int64]  # (M,) a_i(t), equation (8)
    priorities: NDArray[np.float64]  # (M,) from training; zeros without
    chosen: NDArray[np.int64]  # (M,) channels selected
    scores: NDArray[np.float64]  # (1, N) ranking key
    assignment: NDArray[np.int64]  # (M,) channel of each client, -1 idle
    overridden: NDArray[np.int8]  # (M,) 1 where an AoI-aware rule acted
    outcome: NDArray[np.int8]  # (M,) 1 delivered, 0 lost, -1 unknown


def open_desk(n_clients: int, n_channels: int) -> Desk:
    """Return the desk before the first round: all ages are 1."""
    return Desk(
        ages=np.ones(n_clients, np.int64),
        priorities=np.zeros(n_clients),
        chosen=np.zeros(n_clients, np.int64),
        scores=np.zeros((1, n_channels)),
        assignment=np.full(n_clients, -1, np.int64),
        overridden=np.zeros(n_clients, np.int8),
        outcome=np.full(n_clients, -1, np.int8),
    )


@kernel
def plan_round(scheduler: Any, matching: Any, desk: Any, rng: Any, t: int) -> None:
    """Select channels, rank them, match, override: fills ``desk.assignment`` for round t."""
    for j in range(len(desk.overridden)):
        desk.overridden[j] = 0
    select(scheduler, t, desk.ages, rng, desk.chosen)
    score(scheduler, t, desk.scores)
    match(matching, t, desk.chosen, desk.scores, desk.ages, desk.priorities, rng, desk.assignment)
    override(scheduler, t, desk.ages, desk.scores, desk.assignment, desk.overridden)


@kernel
def observe_round(scheduler: Any, desk: Any, t: int) -> int:
    """Age the clients by ``desk.outcome`` and learn; return the channel found changed, or -1."""
    for j in range(len(desk.ages)):
        desk.ages[j] = 1 if desk.outcome[j] == 1 else desk.ages[j] + 1
    return update(  # type: ignore[no-any-return]
        scheduler, t, desk.assignment, desk.outcome, desk.overridden
    )
