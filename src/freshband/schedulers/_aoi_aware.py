"""AoI-aware rules: exploit when ages are high (erratum E16).

Both rules wrap any scheduler and use its historical means; a client that the matching left without
a channel stays without one. They are written ``+aa-sum`` and ``+aa``.

``sum`` (section IV)
    When the ages add up to more than `sum of 1/mean_k over the M best channels`, this round uses
    the M channels with the best historical means. The paper gives no threshold; this one is the sum
    of ages that those channels would sustain. The scheduler's own choice, including a forced sweep,
    is skipped in such a round.
``per_client`` (section VI)
    Every client older than `h(t) = 1 / max mean_k` takes, oldest first, the free channel with the
    best historical mean; clients whose channel was taken get the next best one by the scheduler's
    own key. With one client this is the rule of the AoI bandits of Bhandari, Fatale et al.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from freshband._jit import cold, kernel
from freshband.ranking import CLIENTS, sort_by, take_available, take_best
from freshband.schedulers.base import (
    forget_client,
    link_mean,
    means,
    override,
    reveal,
    score,
    select,
    select_available,
    update,
    update_late,
)
from freshband.states import FIXED, FLAGS, ORDER, between, declare, record

RULES = ("sum", "per_client")


class AoIAwareState(NamedTuple):
    """Any scheduler's state, and scratch arrays."""

    inner: Any
    mean: NDArray[np.float64]  # (N,) historical means
    order: NDArray[np.int64]  # (N,) channels by mean
    spare: NDArray[np.int64]  # (N,) channels by the scheduler's key
    taken: NDArray[np.int8]  # (N,)
    clients: NDArray[np.int64]  # (M,)
    rule: NDArray[np.void]  # the rule, and whether `sum` acts this round


declare(
    AoIAwareState,
    order=ORDER,
    spare=ORDER,
    taken=FLAGS,
    clients=between(0, "clients"),
    rule={"rule": FIXED, "acts": FLAGS},
)


def wrap(inner: Any, rule: str, n_clients: int, n_channels: int) -> AoIAwareState:
    """Return the state of a scheduler made AoI-aware."""
    return AoIAwareState(
        inner=inner,
        mean=np.zeros(n_channels),
        order=np.arange(n_channels),
        spare=np.arange(n_channels),
        taken=np.zeros(n_channels, np.int8),
        clients=np.zeros(n_clients, np.int64),
        rule=record(rule=RULES.index(rule), acts=0),
    )


@select.register(AoIAwareState)
def _select(scheduler: AoIAwareState, t: int, ages: Any, rng: Any, chosen: Any) -> None:
    scheduler.rule[0]["acts"] = 0
    if scheduler.rule[0]["rule"] == 0:
        means(scheduler.inner, scheduler.mean)
        take_best(scheduler.mean, t, chosen)
        if _are_too_old(scheduler, t, ages, chosen):
            return
    select(scheduler.inner, t, ages, rng, chosen)


@kernel
def _are_too_old(scheduler: Any, t: int, ages: Any, chosen: Any) -> bool:
    """Whether the ages add up to more than the chosen channels sustain; then the rule acts."""
    sustained = 0.0
    total = 0
    here = 0
    for j in range(len(ages)):
        total += ages[j]
        here += ages[j] > 0
    if here < len(chosen):  # all channels are offered, but only the best would be used
        sort_by(scheduler.mean, t, chosen)
    for j in range(min(here, len(chosen))):
        mean = scheduler.mean[chosen[j]]
        sustained += 1.0 / mean if mean > 0.0 else math.inf
    if total > sustained:
        scheduler.rule[0]["acts"] = 1
    return total > sustained


@select_available.register(AoIAwareState)
def _select_available(
    scheduler: AoIAwareState, t: int, ages: Any, rng: Any, available: Any, scores: Any, chosen: Any
) -> bool:
    scheduler.rule[0]["acts"] = 0
    if scheduler.rule[0]["rule"] == 0:
        means(scheduler.inner, scheduler.mean)
        take_available(scheduler.mean, t, available, chosen)
        if _are_too_old(scheduler, t, ages, chosen):
            return True
    chose: bool = select_available(scheduler.inner, t, ages, rng, available, scores, chosen)
    return chose


@score.register(AoIAwareState)
def _score(scheduler: AoIAwareState, t: int, scores: Any) -> None:
    if scheduler.rule[0]["acts"] == 1:
        for row in range(len(scores)):
            for channel in range(scores.shape[1]):
                scores[row, channel] = scheduler.mean[channel]
    else:
        score(scheduler.inner, t, scores)


@override.register(AoIAwareState)
def _override(
    scheduler: AoIAwareState, t: int, ages: Any, scores: Any, assignment: Any, overridden: Any
) -> None:
    n_clients = len(assignment)
    if scheduler.rule[0]["rule"] == 0:
        for j in range(n_clients):
            overridden[j] = scheduler.rule[0]["acts"]
        return
    means(scheduler.inner, scheduler.mean)
    best = 0.0
    for channel in range(len(scheduler.mean)):
        best = max(best, scheduler.mean[channel])
    limit = 1.0 / best if best > 0.0 else math.inf
    late = 0
    for j in range(n_clients):
        if ages[j] > limit and assignment[j] >= 0:  # only clients that have a channel
            overridden[j] = 1
            scheduler.clients[late] = j
            late += 1
    if late > 0:
        _jump_queue(scheduler, t, ages, scores, assignment, overridden, late)


@cold
def _jump_queue(
    scheduler: Any,
    t: int,
    ages: Any,
    scores: Any,
    assignment: Any,
    overridden: Any,
    late: int,
) -> None:
    """Give late clients the channels of the best means, oldest first; replace those of others."""
    taken = scheduler.taken
    for channel in range(len(taken)):
        taken[channel] = 0
        scheduler.order[channel] = channel
    sort_by(scheduler.mean, t, scheduler.order)
    sort_by(ages, t + CLIENTS, scheduler.clients[:late])
    for rank in range(late):
        channel = scheduler.order[rank]
        assignment[scheduler.clients[rank]] = channel
        taken[channel] = 1
    robbed = 0
    for j in range(len(assignment)):
        if overridden[j] == 0 and assignment[j] >= 0:
            if taken[assignment[j]] == 1:
                scheduler.clients[robbed] = j
                robbed += 1
            else:
                taken[assignment[j]] = 1
    if robbed > 0:
        next_spare = 0
        for rank in range(robbed):
            client = scheduler.clients[rank]
            if rank == 0 or len(scores) > 1:  # one ranking for all, or one per client
                next_spare = 0
                for channel in range(len(taken)):
                    scheduler.spare[channel] = channel
                sort_by(scores[client if len(scores) > 1 else 0], t, scheduler.spare)
            while taken[scheduler.spare[next_spare]] == 1:
                next_spare += 1
            channel = scheduler.spare[next_spare]
            assignment[client] = channel
            taken[channel] = 1


@means.register(AoIAwareState)
def _means(scheduler: AoIAwareState, out: Any) -> None:
    means(scheduler.inner, out)


@link_mean.register(AoIAwareState)
def _link_mean(scheduler: AoIAwareState, client: int, channel: int) -> float:
    return link_mean(scheduler.inner, client, channel)  # type: ignore[no-any-return]  # a verb


@forget_client.register(AoIAwareState)
def _forget_client(scheduler: AoIAwareState, client: int) -> None:
    forget_client(scheduler.inner, client)


@update.register(AoIAwareState)
def _update(
    scheduler: AoIAwareState, t: int, assignment: Any, outcome: Any, overridden: Any
) -> int:
    restarted: int = update(scheduler.inner, t, assignment, outcome, overridden)
    return restarted


@update_late.register(AoIAwareState)
def _update_late(
    scheduler: AoIAwareState, t: int, when: int, client: int, channel: int, outcome: int
) -> int:
    alarm: int = update_late(scheduler.inner, t, when, client, channel, outcome)
    return alarm


@reveal.register(AoIAwareState)
def _reveal(scheduler: AoIAwareState, true_means: Any, states: Any) -> None:
    reveal(scheduler.inner, true_means, states)
