"""What a matching is: a rule that gives the chosen channels to clients.

A matching registers `match`. One that pairs the ranks of channels with the ranks of clients
registers only how it ranks: see `pairs_ranks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from freshband._jit import cold, kernel, verb
from freshband._registry import Registry
from freshband._scratch import give_back, take_scratch
from freshband.matching._assignment import assign
from freshband.ranking import CLIENTS, _sort_few, sort_by, take_best

_StateType = TypeVar("_StateType", bound=type)


class Matching(Protocol):
    """A rule that gives channels to clients."""

    needs_contributions: ClassVar[bool]  # whether it ranks by contributions; default False
    presets: ClassVar[Mapping[str, Mapping[str, Any]]]  # settings by name; default none

    def start(self, n_clients: int, lot: int = 0) -> Any:
        """Allocate the state; ``lot``, drawn once per run, breaks ties differently in each run."""
        ...


def _complete_presets(kind: Any) -> None:
    """Add the preset ``default``."""
    kind.presets = {"default": {}, **kind.presets}


registry: Registry[Any] = Registry(
    "matching",
    "freshband.matching",
    needs={
        "model_fields": "derive it from freshband.parameters.Parameters",
        "start": "a method that allocates the state",
    },
    defaults={"needs_contributions": False, "presets": {}},
    complete=_complete_presets,
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
    """Give the chosen channels to clients; where links are scored, `match_links` does it.

    Parameters
    ----------
    matching : state
    t : int
        The round, counted from 1.
    chosen : int64 array, shape (M,)
        The channels to hand out; may be reordered. M is the number of clients that may send in
        this round, at most the number for which the state was started.
    scores : float64 array, shape (1, N)
        The ranking key of channels, higher is better.
    ages : int64 or float64 array, shape (M,)
        Ages at the end of the previous round; real numbers where clients have weights or outcomes
        are unknown: see `serve`.
    priorities : float64 array, shape (M,)
        The contribution of each client, higher is more important; zeros without training.
    rng : numpy Generator
    assignment : int64 array, shape (M,)
        The array to fill with the channel of each client. It holds -1 at first; a client that keeps
        -1 does not send in this round.
    """


@verb
def match_links(
    matching: Any,
    t: int,
    chosen: Any,
    scores: Any,
    ages: Any,
    priorities: Any,
    most: int,
    rng: Any,
    assignment: Any,
) -> None:
    """Give channels to clients of which at most ``most`` may send, where links are scored.

    ``chosen`` holds all channels that can be used, any number; ``ages``, shape (M,), are 0 for
    absent clients. By default `match` pairs as many clients as may send, chosen by `serve`, with
    as many channels, those that `rank_channels` puts first.
    """
    here = 0
    for client in range(len(ages)):
        here += ages[client] > 0.0
    sending = min(min(here, most), len(chosen))
    if sending == 0:
        return
    served = np.flatnonzero(ages)
    if sending < here:
        served = served[:sending]
        serve(matching, t, ages, priorities, rng, served)
    offered, given = chosen[:sending], np.full(sending, -1)
    if sending < len(chosen):
        rank_channels(matching, t, scores, rng, chosen)
        _sort_few(offered)
    rows = scores[served]
    match(matching, t, offered, rows, ages[served], priorities[served], rng, given)
    for slot in range(sending):
        assignment[served[slot]] = given[slot]


def pairs_ranks(state_type: _StateType) -> _StateType:
    """Give the client of rank r the channel of rank r (class decorator).

    The state has a field ``clients``, shape (M,), and registers `rank_clients`.
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
    for rank in range(len(chosen)):
        assignment[matching.clients[rank]] = chosen[rank]


def serves_urgent(state_type: _StateType) -> _StateType:
    """Maximise the sum of urgency times score where links are scored (class decorator).

    The state has a field ``clients``, shape (M,), and registers `rank_clients`, which decides
    between equal assignments, and `write_urgency`.
    """
    match_links.register(state_type)(_serve_urgent)
    return state_type


@cold
def _serve_urgent(
    matching: Any,
    t: int,
    chosen: Any,
    scores: Any,
    ages: Any,
    priorities: Any,
    most: int,
    rng: Any,
    assignment: Any,
) -> None:
    rank_clients(matching, t, ages, priorities)
    ranked = matching.clients.copy()
    here = 0
    for rank in range(len(ages)):
        if ages[ranked[rank]] > 0.0:
            ranked[here] = ranked[rank]
            here += 1
    urgency = np.zeros(len(ages))
    write_urgency(matching, ages, urgency)
    assign(urgency, scores, ranked[:here], chosen, most, assignment)


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
def write_urgency(matching: Any, ages: Any, out: Any) -> None:
    """Write the urgency of each client, shape (M,): see `serves_urgent`."""


@verb
def serve(matching: Any, t: int, ages: Any, priorities: Any, rng: Any, served: Any) -> None:
    """Fill ``served`` with distinct clients where not all can send; by default the oldest.

    ``ages``, shape (M,), are 0 for absent clients, who must not be served. They are *effective*
    ages x, for which x (x + 1) is the weight of the client times age (age + 1) times the
    probability that it is alive. ``served`` is never longer than the number of those present.
    """
    take_best(ages, t + CLIENTS, served)


@kernel
def sort_clients(keys: Any, t: int, lot: int, clients: Any) -> None:
    """Sort clients by decreasing key; ties are independent of those of channels."""
    for j in range(len(keys)):
        clients[j] = j
    sort_by(keys, t + CLIENTS + lot, clients[: len(keys)])


@cold
def _sort_by_sums(scores: Any, t: int, chosen: Any) -> None:
    sums = take_scratch(scores.shape[1])
    for channel in range(len(sums)):
        sums[channel] = 0.0
    for j in range(len(scores)):
        for channel in range(len(sums)):
            sums[channel] += scores[j, channel]
    sort_by(sums, t, chosen)
    give_back(sums)


@verb
def priorities_of(matching: Any, out: Any) -> bool:
    """Write the clients' priorities in the last plan, shape (M,); return whether there are any."""
    return False
