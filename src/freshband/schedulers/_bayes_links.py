"""`bayes` for links that may differ per client: which kind of difference, it finds out.

All links change at once. For each possible beginning of the present segment there are several
forecasters, each of which assumes something else about the links. Every pair of a forecaster and a
hazard is a filter over the beginnings, weighted by how well it predicts, as in `bayes`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from freshband._jit import cold, kernel
from freshband.schedulers._beginnings import (
    HAZARDS,
    MANY,
    TRACE,
    begin,
    put_back_powers,
    reweigh,
    reweigh_far,
    take_out_powers,
    weigh_filters,
)
from freshband.schedulers._link_rates import (
    ADDITIVE,
    CENTRED,
    LEVEL_VARIANCE,
    OFFSET_VARIANCE,
    SLAB,
    STRENGTHS,
    absorb,
    predict,
)
from freshband.schedulers._links import average_clients, offer_all
from freshband.schedulers.base import (
    forget_client,
    link_mean,
    means,
    score,
    select,
    update,
    update_late,
)
from freshband.states import FIXED, FLAGS, between, declare, not_saved

__all__ = ["BayesLinksState", "start_links"]

_OFFSET_DRIFT = 0.2  # added to the variance of an offset that outlives a segment
_SLOW = 1e-2  # higher hazards are trusted less at first: there is much to learn about many links
_FORGET = 1e-5  # share of the trust that is spread evenly in each round
_NEGLIGIBLE = 1e-3  # predictions leave out what has this share of the largest weight, or less


class BayesLinksState(NamedTuple):
    """K beginnings, F forecasters, H hazards; M clients and N channels."""

    hazards: NDArray[np.float64]  # (H,)
    trust: NDArray[np.float64]  # (F, H) in a forecaster at a hazard
    evidence: NDArray[np.float64]  # (F, H) log-likelihood of a round
    weight: NDArray[np.float64]  # (F, H, K) probability of a beginning
    fresh: NDArray[np.int64]  # (1,) the beginning without outcomes so far
    since: NDArray[np.int64]  # (K,) the first round of a beginning
    wins: NDArray[np.float64]  # (K, M, N) successes of a link since a beginning
    tries: NDArray[np.float64]  # (K, M, N)
    slab: NDArray[np.float64]  # (K, M, N) probability that a link differs from its channel
    all_wins: NDArray[np.float64]  # (K, N) successes on a channel
    all_tries: NDArray[np.float64]  # (K, N)
    base_wins: NDArray[np.float64]  # (K, N) those of links that do not differ, in expectation
    base_tries: NDArray[np.float64]  # (K, N)
    level: NDArray[np.float64]  # (K, N) logit of a channel, of an average client
    level_variance: NDArray[np.float64]  # (K, N)
    offset: NDArray[np.float64]  # (K, M) what a client adds to it
    offset_variance: NDArray[np.float64]  # (K, M)
    strengths: NDArray[np.float64]  # (F - 4,) of the centred forecasters
    likelihood: NDArray[np.float64]  # (F, K) scratch
    shares: NDArray[np.float64]  # (F, K) scratch
    power: NDArray[np.int64]  # (F, K) powers of two taken out of it
    pooled: NDArray[np.float64]  # (K,) scratch
    mean: NDArray[np.float64]  # (M, N) posterior mean
    gain: NDArray[np.float64]  # (M, N) what trying a link is worth beyond its mean
    stale: NDArray[np.int8]  # (1,) whether these two lack outcomes
    boost: NDArray[np.float64]  # (M,) the weight of the gain in a client's scores
    optimism: NDArray[np.float64]  # (1,)
    anchor: NDArray[np.int64]  # (1,) changes before this round are known
    alarm: NDArray[np.float64]  # (1,) the probability above which a change is reported


not_saved(BayesLinksState, "likelihood", "shares", "power", "pooled")
declare(
    BayesLinksState,
    hazards=FIXED,
    fresh=between(0, "since"),
    since=between(0, "round"),
    strengths=FIXED,
    stale=FLAGS,
    optimism=FIXED,
    anchor=between(0, "round"),
    alarm=FIXED,
)


def start_links(
    n_clients: int, n_channels: int, slots: int, optimism: float, alarm: float
) -> BayesLinksState:
    """Allocate the state: one beginning, and all forecasters equally trusted."""
    ways, hazards = CENTRED + len(STRENGTHS), len(HAZARDS)
    prior = np.minimum(_SLOW / np.array(HAZARDS), 1.0) ** 2
    weight = np.zeros((ways, hazards, slots))
    weight[:, :, 0] = 1.0
    links, channels = (slots, n_clients, n_channels), (slots, n_channels)
    return BayesLinksState(
        hazards=np.array(HAZARDS),
        trust=np.tile(prior / (ways * prior.sum()), (ways, 1)),
        evidence=np.zeros((ways, hazards)),
        weight=weight,
        fresh=np.zeros(1, np.int64),
        since=np.zeros(slots, np.int64),
        wins=np.zeros(links),
        tries=np.zeros(links),
        slab=np.full(links, SLAB),
        all_wins=np.zeros(channels),
        all_tries=np.zeros(channels),
        base_wins=np.zeros(channels),
        base_tries=np.zeros(channels),
        level=np.zeros(channels),
        level_variance=np.full(channels, LEVEL_VARIANCE),
        offset=np.zeros((slots, n_clients)),
        offset_variance=np.full((slots, n_clients), OFFSET_VARIANCE),
        strengths=np.array(STRENGTHS),
        likelihood=np.ones((ways, slots)),
        shares=np.zeros((ways, slots)),
        power=np.zeros((ways, slots), np.int64),
        pooled=np.zeros(slots),
        mean=np.full((n_clients, n_channels), 0.5),
        gain=np.zeros((n_clients, n_channels)),
        stale=np.ones(1, np.int8),
        boost=np.zeros(n_clients),
        optimism=np.array([optimism]),
        anchor=np.ones(1, np.int64),
        alarm=np.array([alarm]),
    )


@kernel
def _clear(state: Any) -> None:
    """Prepare the scratch arrays for outcomes."""
    for way in range(len(state.likelihood)):
        for k in range(len(state.since)):
            state.likelihood[way, k] = 1.0
            state.power[way, k] = 0
        for h in range(len(state.hazards)):
            state.evidence[way, h] = 0.0


@kernel
def _rescale(state: Any) -> None:
    for way in range(len(state.likelihood)):
        take_out_powers(state.likelihood[way], state.power[way])


@kernel
def _weigh(state: Any, rescaled: bool, forget: float) -> None:
    """Multiply weights and trust by the likelihoods."""
    for way in range(len(state.likelihood)):
        weight, evidence = state.weight[way], state.evidence[way]
        likelihood, power = state.likelihood[way], state.power[way]
        if not rescaled or put_back_powers(likelihood, power, state.fresh[0]):
            reweigh(weight, likelihood, evidence)
        else:
            reweigh_far(weight, likelihood, power, evidence)
    weigh_filters(state.trust, state.evidence, forget)


@kernel
def _begin_anew(state: Any, t: int) -> None:
    """Let a segment begin in round ``t`` in place of the least likely beginning."""
    ways, hazards, slots = state.weight.shape
    rows = ways * hazards
    weight, trust = state.weight.reshape((rows, slots)), state.trust.reshape((rows,))
    fresh = begin(weight, trust, state.pooled)
    state.pooled[fresh] = 0.0  # it has been given up
    state.fresh[0] = fresh
    state.since[fresh] = t
    for channel in range(state.all_wins.shape[1]):
        state.all_wins[fresh, channel] = 0.0
        state.all_tries[fresh, channel] = 0.0
        state.base_wins[fresh, channel] = 0.0
        state.base_tries[fresh, channel] = 0.0
        state.level[fresh, channel] = 0.0
        state.level_variance[fresh, channel] = LEVEL_VARIANCE
        for client in range(state.wins.shape[1]):
            state.wins[fresh, client, channel] = 0.0
            state.tries[fresh, client, channel] = 0.0
            state.slab[fresh, client, channel] = SLAB
    _carry_offsets(state, fresh)


@kernel
def _write_shares(state: Any, way: int, shares: Any) -> float:
    """Write a forecaster's weights of the beginnings, summed over hazards by trust."""
    total = 0.0
    for k in range(len(shares)):
        shares[k] = 0.0
        for h in range(len(state.hazards)):
            shares[k] += state.trust[way, h] * state.weight[way, h, k]
        total += shares[k]
    return total


@kernel
def _carry_offsets(state: Any, fresh: int) -> None:
    """Start the clients' offsets where the other beginnings have them: clients do not change."""
    shares = state.shares[ADDITIVE]
    total = _write_shares(state, ADDITIVE, shares) - shares[fresh]
    for client in range(state.offset.shape[1]):
        mean, variance = 0.0, OFFSET_VARIANCE
        if total > 0.0:
            variance = _OFFSET_DRIFT
            for k in range(len(shares)):
                if k != fresh:
                    mean += shares[k] / total * state.offset[k, client]
                    variance += shares[k] / total * state.offset_variance[k, client]
        state.offset[fresh, client] = mean
        state.offset_variance[fresh, client] = variance


@cold
def _estimate(state: Any) -> None:
    """Combine the forecasters' predictions; beginnings that hardly count are left out."""
    mean, gain, shares = state.mean, state.gain, state.shares
    ways, slots = shares.shape
    most = 0.0
    for way in range(ways):
        _write_shares(state, way, shares[way])
        for k in range(slots):
            most = max(most, shares[way, k])
    used = 0.0
    for way in range(ways):
        for k in range(slots):
            if shares[way, k] > _NEGLIGIBLE * most:
                used += shares[way, k]
    mean[:] = 0.0
    gain[:] = 0.0
    for way in range(ways):
        for k in range(slots):
            if shares[way, k] > _NEGLIGIBLE * most:
                predict(state, way, k, shares[way, k] / used)
    state.stale[0] = 0


@kernel
def _catch_up(state: Any) -> None:
    if state.stale[0] == 1:
        _estimate(state)


@select.register(BayesLinksState)
def _select(scheduler: BayesLinksState, t: int, ages: Any, rng: Any, chosen: Any) -> None:
    for client in range(len(ages)):
        # young clients explore: with urgency a (a + 1), their gain counts a + 1 times
        boost = scheduler.optimism[0] / max(ages[client], 1.0)
        scheduler.boost[client] = boost
    offer_all(chosen)


@score.register(BayesLinksState)
def _score(scheduler: BayesLinksState, t: int, scores: Any) -> None:
    _catch_up(scheduler)
    for client in range(scores.shape[0]):
        for channel in range(scores.shape[1]):
            bonus = scheduler.boost[client] * scheduler.gain[client, channel]
            scores[client, channel] = scheduler.mean[client, channel] + bonus


@means.register(BayesLinksState)
def _means(scheduler: BayesLinksState, out: Any) -> None:
    _catch_up(scheduler)
    average_clients(scheduler.mean, out)


@link_mean.register(BayesLinksState)
def _link_mean(scheduler: BayesLinksState, client: int, channel: int) -> float:
    _catch_up(scheduler)
    return scheduler.mean[client, channel]  # type: ignore[no-any-return]  # a numpy number


@forget_client.register(BayesLinksState)
def _forget_client(scheduler: BayesLinksState, client: int) -> None:
    # What is known of the channels, and of how links are related, stays.
    scheduler.wins[:, client] = 0.0
    scheduler.tries[:, client] = 0.0
    scheduler.slab[:, client] = SLAB
    scheduler.offset[:, client] = 0.0
    scheduler.offset_variance[:, client] = OFFSET_VARIANCE
    scheduler.stale[0] = 1


@kernel
def _notice(state: Any, t: int) -> bool:
    """Whether a change is believed that was not believed before; a segment has just begun anew."""
    total, late = 0.0, 0.0
    for k in range(len(state.since)):
        total += state.pooled[k]
        if state.since[k] > state.anchor[0]:
            late += state.pooled[k]
    if late <= state.alarm[0] * total:
        return False
    state.anchor[0] = t
    return True


@update.register(BayesLinksState)
def _update(
    scheduler: BayesLinksState, t: int, assignment: Any, outcome: Any, overridden: Any
) -> int:
    _clear(scheduler)
    count, alarm = 0, -1
    for client in range(len(assignment)):
        if assignment[client] >= 0 and outcome[client] >= 0:
            absorb(scheduler, t, client, assignment[client], outcome[client])
            alarm = assignment[client]
            count += 1
            if count % MANY == 0:
                _rescale(scheduler)
    _weigh(scheduler, count >= MANY, _FORGET)
    if count > 0:
        _begin_anew(scheduler, t + 1)
        if not _notice(scheduler, t):
            alarm = -1
    fresh = scheduler.fresh[0]
    for way in range(len(scheduler.weight)):
        for h in range(len(scheduler.hazards)):
            hazard = scheduler.hazards[h]
            for k in range(len(scheduler.since)):
                scheduler.weight[way, h, k] *= 1.0 - hazard
            scheduler.weight[way, h, fresh] += hazard
    scheduler.stale[0] = 1
    return alarm


@update_late.register(BayesLinksState)
def _update_late(
    scheduler: BayesLinksState, t: int, when: int, client: int, channel: int, outcome: int
) -> int:
    _clear(scheduler)
    absorb(scheduler, when, client, channel, outcome)
    _weigh(scheduler, False, TRACE)
    scheduler.stale[0] = 1
    if scheduler.since[scheduler.fresh[0]] > when:
        return -1
    _begin_anew(scheduler, t + 1)
    return channel if _notice(scheduler, t) else -1
