"""What a matching is: a rule that gives the chosen channels to clients.

A matching registers `match`. One that pairs the ranks of channels with the ranks of clients
registers only how it ranks: see `pairs_ranks`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from freshband._jit import cold, kernel, verb
from freshband._registry import Registry
from freshband.matching._assignment import assign
from freshband.ranking import CLIENTS, sort_by

__all__ = [
    "Matching",
    "match",
    "pairs_ranks",
    "priorities_of",
    "rank_channels",
    "rank_clients",
    "register",
    "registry",
    "sort_clients",
    "write_urgency",
]

_StateType = TypeVar("_StateType", bound=type)


class Matching(Protocol):
    """A rule that gives channels to clients."""

    needs_contributions: ClassVar[bool]  # whether it ranks by contributions; default False

    def start(self, n_clients: int, lot: int = 0) -> Any:
        """Allocate the state; ``lot``, drawn once per run, breaks ties differently in each run."""
        ...


registry: Registry[Any] = Registry(
    "matching",
    "freshband.matching",
    needs={
        "model_fields": "derive it from freshband.parameters.Parameters",
        "start": "a method that allocates the state",
    },
    defaults={"needs_contributions": False},
)
register = registry.register


@verb
def match(
    matching: Any,
    t: int,
    chosen: Any,
    scores: Any,
    ages: Any,
    priorities: Any,
    rng: Any,
    assignment: Any,
) -> None:
    """Give the chosen channels to clients.

    Parameters
    ----------
    matching : state
    t : int
        The round, counted from 1.
    chosen : int64 array, shape (M,)
        The channels to hand out; may be reordered.
    scores : float64 array, shape (1, N) or (M, N)
        The ranking key of channels, higher is better: one row for all clients, or one each.
    ages : int64 array, shape (M,)
        Ages at the end of the previous round.
    priorities : float64 array, shape (M,)
        The contribution of each client, higher is more important; zeros without training.
    rng : numpy Generator
    assignment : int64 array, shape (M,)
        The array to fill with the channel of each client. It holds -1 at first; a client that keeps
        -1 does not send in this round.
    """


def pairs_ranks(state_type: _StateType) -> _StateType:
    """Give the client of rank r the channel of rank r (class decorator).

    The state has a field ``clients``, shape (M,), and registers `rank_clients`. Where links differ
    and it registers `write_urgency`, the sum of urgency times score is maximised instead.
    """
    match.register(state_type)(_pair_ranks)
    return state_type


def _pair_ranks(
    matching: Any,
    t: int,
    chosen: Any,
    scores: Any,
    ages: Any,
    priorities: Any,
    rng: Any,
    assignment: Any,
) -> None:
    rank_channels(matching, t, scores, rng, chosen)
    rank_clients(matching, t, ages, priorities)
    if len(scores) > 1 and _serve_urgent(matching, chosen, scores, ages, assignment):
        return
    for rank in range(len(chosen)):
        assignment[matching.clients[rank]] = chosen[rank]


@verb
def rank_channels(matching: Any, t: int, scores: Any, rng: Any, chosen: Any) -> None:
    """Sort the chosen channels, the best first: by default by score, summed over the clients."""
    if len(scores) == 1:
        sort_by(scores[0], t, chosen)
    else:
        _sort_by_sums(scores, t, chosen)


@verb
def rank_clients(matching: Any, t: int, ages: Any, priorities: Any) -> None:
    """Sort ``matching.clients`` in the order of service; by default keep the order."""


@verb
def write_urgency(matching: Any, ages: Any, out: Any) -> bool:
    """Write the urgency of each client, shape (M,); return whether this matching uses it."""
    return False


@kernel
def sort_clients(keys: Any, t: int, lot: int, clients: Any) -> None:
    """Sort all clients by decreasing key; ties are independent of those of channels."""
    for j in range(len(clients)):
        clients[j] = j
    sort_by(keys, t + CLIENTS + lot, clients)


@cold
def _sort_by_sums(scores: Any, t: int, chosen: Any) -> None:
    sums = np.zeros(scores.shape[1])
    for j in range(len(scores)):
        for channel in range(len(sums)):
            sums[channel] += scores[j, channel]
    sort_by(sums, t, chosen)


@cold
def _serve_urgent(matching: Any, chosen: Any, scores: Any, ages: Any, assignment: Any) -> bool:
    """Maximise the sum of urgency times score, or return False if urgency is not used."""
    urgency = np.zeros(len(ages))
    if not write_urgency(matching, ages, urgency):
        return False
    assign(urgency, scores, matching.clients, chosen, len(ages), assignment)
    return True


@verb
def priorities_of(matching: Any, out: Any) -> bool:
    """Write the clients' priorities in the last plan, shape (M,); return whether there are any."""
    return False
