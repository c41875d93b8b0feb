"""`bayes` for links that may differ per client: which kind of difference, it finds out.

All links change at once. For each possible beginning of the present segment there are several
forecasters, each of which assumes something else about the links. Every pair of a forecaster and a
hazard is a filter over the beginnings, weighted by how well it predicts, as in `bayes`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from freshband._jit import cold, kernel
from freshband.schedulers._beginnings import (
    FORGET,
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
from freshband.schedulers._links import average_clients, offer_all, offer_available
from freshband.schedulers.base import (
    link_mean,
    means,
    score,
    select,
    select_available,
    update,
    update_late,
)
from freshband.states import not_saved

__all__ = ["BayesLinksState", "start_links"]

_STRENGTHS = (6.0,)  # outcomes that the rate of the channel is worth, for centred links
_SHARED, _APART, _SPIKED, _ADDITIVE, _CENTRED = range(5)  # then one centred per strength
_SLAB = 0.25  # prior probability that a link differs from its channel
_SURE = 1e-6  # such probabilities stay this far from 0 and 1, and rates from 0 and 1
_LEVEL_VARIANCE = 2.0  # logit of a channel: roughly that of a uniform rate
_OFFSET_VARIANCE = 4.0  # logit offset of a client
_OFFSET_DRIFT = 0.2  # added to the variance of an offset that outlives a segment
_PROBIT = math.pi / 8.0  # E[sigmoid(x)] is close to sigmoid(mean / sqrt(1 + variance pi / 8))
_NEGLIGIBLE = 1e-3  # weight below which a beginning is left out of predictions
_EAGERNESS = 1.5  # times optimism; see `_score`


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
    power: NDArray[np.int64]  # (F, K) powers of two taken out of it
    pooled: NDArray[np.float64]  # (K,) scratch
    mean: NDArray[np.float64]  # (M, N) posterior mean
    spread: NDArray[np.float64]  # (M, N) posterior standard deviation
    stale: NDArray[np.int8]  # (1,) whether these two lack outcomes
    boost: NDArray[np.float64]  # (M,) the weight of the spread in a client's scores
    optimism: NDArray[np.float64]  # (1,)


not_saved(BayesLinksState, "likelihood", "power", "pooled")


def start_links(n_clients: int, n_channels: int, slots: int, optimism: float) -> BayesLinksState:
    """Allocate the state: one beginning, and all forecasters equally trusted."""
    ways, hazards = _CENTRED + len(_STRENGTHS), len(HAZARDS)
    weight = np.zeros((ways, hazards, slots))
    weight[:, :, 0] = 1.0
    links, channels = (slots, n_clients, n_channels), (slots, n_channels)
    return BayesLinksState(
        hazards=np.array(HAZARDS),
        trust=np.full((ways, hazards), 1.0 / (ways * hazards)),
        evidence=np.zeros((ways, hazards)),
        weight=weight,
        fresh=np.zeros(1, np.int64),
        since=np.zeros(slots, np.int64),
        wins=np.zeros(links),
        tries=np.zeros(links),
        slab=np.full(links, _SLAB),
        all_wins=np.zeros(channels),
        all_tries=np.zeros(channels),
        base_wins=np.zeros(channels),
        base_tries=np.zeros(channels),
        level=np.zeros(channels),
        level_variance=np.full(channels, _LEVEL_VARIANCE),
        offset=np.zeros((slots, n_clients)),
        offset_variance=np.full((slots, n_clients), _OFFSET_VARIANCE),
        strengths=np.array(_STRENGTHS),
        likelihood=np.ones((ways, slots)),
        power=np.zeros((ways, slots), np.int64),
        pooled=np.zeros(slots),
        mean=np.full((n_clients, n_channels), 0.5),
        spread=np.zeros((n_clients, n_channels)),
        stale=np.ones(1, np.int8),
        boost=np.zeros(n_clients),
        optimism=np.array([optimism]),
    )


@kernel
def _chance(rate: float, outcome: int) -> float:
    """Return twice the probability of an outcome: without knowledge it is 1."""
    return 2.0 * rate if outcome == 1 else 2.0 - 2.0 * rate


@kernel
def _expected_rate(logit: float, variance: float) -> float:
    """Return the mean of a rate whose logit is Gaussian."""
    rate = 1.0 / (1.0 + math.exp(-logit / math.sqrt(1.0 + _PROBIT * variance)))
    return min(max(rate, _SURE), 1.0 - _SURE)


@kernel
def _shift_logits(state: Any, k: int, client: int, channel: int, outcome: int) -> None:
    """Move level and offset by one step of the extended Kalman filter."""
    of_level = state.level_variance[k, channel]
    of_offset = state.offset_variance[k, client]
    rate = 1.0 / (1.0 + math.exp(-state.level[k, channel] - state.offset[k, client]))
    slope = rate * (1.0 - rate)
    gain = 1.0 / (1.0 + slope * (of_level + of_offset))
    state.level[k, channel] += of_level * (outcome - rate) * gain
    state.offset[k, client] += of_offset * (outcome - rate) * gain
    state.level_variance[k, channel] = of_level - of_level * of_level * slope * gain
    state.offset_variance[k, client] = of_offset - of_offset * of_offset * slope * gain


@kernel
def _absorb(state: Any, when: int, client: int, channel: int, outcome: int) -> None:
    """Use one outcome of round ``when`` in all beginnings that are not younger."""
    likelihood = state.likelihood
    for k in range(len(state.since)):
        if state.since[k] > when:
            continue
        wins, tries = state.wins[k, client, channel], state.tries[k, client, channel]
        apart = (1.0 + wins) / (2.0 + tries)
        shared = (1.0 + state.all_wins[k, channel]) / (2.0 + state.all_tries[k, channel])
        likelihood[_SHARED, k] *= _chance(shared, outcome)
        likelihood[_APART, k] *= _chance(apart, outcome)
        for s in range(len(state.strengths)):
            strength = state.strengths[s]
            centred = (strength * shared + wins) / (strength + tries)
            likelihood[_CENTRED + s, k] *= _chance(centred, outcome)

        base = (1.0 + state.base_wins[k, channel]) / (2.0 + state.base_tries[k, channel])
        slab = state.slab[k, client, channel]
        differs, same = slab * _chance(apart, outcome), (1.0 - slab) * _chance(base, outcome)
        likelihood[_SPIKED, k] *= differs + same
        slab = min(max(differs / (differs + same), _SURE), 1.0 - _SURE)
        state.slab[k, client, channel] = slab
        state.base_wins[k, channel] += (1.0 - slab) * outcome
        state.base_tries[k, channel] += 1.0 - slab

        logit = state.level[k, channel] + state.offset[k, client]
        variance = state.level_variance[k, channel] + state.offset_variance[k, client]
        likelihood[_ADDITIVE, k] *= _chance(_expected_rate(logit, variance), outcome)
        _shift_logits(state, k, client, channel, outcome)

        state.wins[k, client, channel] += outcome
        state.tries[k, client, channel] += 1.0
        state.all_wins[k, channel] += outcome
        state.all_tries[k, channel] += 1.0


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
        if not rescaled or put_back_powers(likelihood, power):
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
    state.fresh[0] = fresh
    state.since[fresh] = t
    for channel in range(state.all_wins.shape[1]):
        state.all_wins[fresh, channel] = 0.0
        state.all_tries[fresh, channel] = 0.0
        state.base_wins[fresh, channel] = 0.0
        state.base_tries[fresh, channel] = 0.0
        state.level[fresh, channel] = 0.0
        state.level_variance[fresh, channel] = _LEVEL_VARIANCE
        for client in range(state.wins.shape[1]):
            state.wins[fresh, client, channel] = 0.0
            state.tries[fresh, client, channel] = 0.0
            state.slab[fresh, client, channel] = _SLAB
    _carry_offsets(state, fresh)


@kernel
def _pool_way(state: Any, way: int) -> float:
    """Write a forecaster's weights of the beginnings, summed over hazards by trust."""
    total = 0.0
    for k in range(len(state.pooled)):
        state.pooled[k] = 0.0
        for h in range(len(state.hazards)):
            state.pooled[k] += state.trust[way, h] * state.weight[way, h, k]
        total += state.pooled[k]
    return total


@kernel
def _carry_offsets(state: Any, fresh: int) -> None:
    """Start the clients' offsets where the other beginnings have them: clients do not change."""
    total = _pool_way(state, _ADDITIVE) - state.pooled[fresh]
    for client in range(state.offset.shape[1]):
        mean, variance = 0.0, _OFFSET_VARIANCE
        if total > 0.0:
            variance = _OFFSET_DRIFT
            for k in range(len(state.pooled)):
                if k != fresh:
                    mean += state.pooled[k] / total * state.offset[k, client]
                    variance += state.pooled[k] / total * state.offset_variance[k, client]
        state.offset[fresh, client] = mean
        state.offset_variance[fresh, client] = variance


@kernel
def _predict_counts(state: Any, way: int, k: int, share: float, square: Any) -> None:
    """Add the first two moments of all links under a forecaster that counts."""
    mean = state.mean
    n_clients, n_channels = mean.shape
    strength = state.strengths[way - _CENTRED] if way >= _CENTRED else 0.0
    for client in range(n_clients):
        wins, tries = state.wins[k, client], state.tries[k, client]
        slab = state.slab[k, client]
        for channel in range(n_channels):
            if way == _APART:
                a, b = 1.0 + wins[channel], 2.0 + tries[channel]
            elif way == _SPIKED:
                a, b = 1.0 + state.base_wins[k, channel], 2.0 + state.base_tries[k, channel]
            else:
                a, b = 1.0 + state.all_wins[k, channel], 2.0 + state.all_tries[k, channel]
            if way >= _CENTRED:
                a = strength * a / b + wins[channel]
                b = strength + tries[channel]
            first = a / b
            second = first * (a + 1.0) / (b + 1.0)
            if way == _SPIKED:
                a, b = 1.0 + wins[channel], 2.0 + tries[channel]
                own = a / b
                first += slab[channel] * (own - first)
                second += slab[channel] * (own * (a + 1.0) / (b + 1.0) - second)
            mean[client, channel] += share * first
            square[client, channel] += share * second


@kernel
def _predict_logits(state: Any, k: int, share: float, square: Any) -> None:
    """Add the first two moments of all links under the additive forecaster."""
    n_clients, n_channels = state.mean.shape
    for client in range(n_clients):
        for channel in range(n_channels):
            logit = state.level[k, channel] + state.offset[k, client]
            variance = state.level_variance[k, channel] + state.offset_variance[k, client]
            rate = _expected_rate(logit, variance)
            slope = rate * (1.0 - rate)
            state.mean[client, channel] += share * rate
            around = min(slope * slope * variance, slope / 3.0)
            square[client, channel] += share * (rate * rate + around)


@cold
def _estimate(state: Any) -> None:
    """Combine the forecasters' predictions; beginnings that hardly count are left out."""
    mean, square = state.mean, state.spread
    mean[:] = 0.0
    square[:] = 0.0
    used = 0.0
    for way in range(len(state.trust)):
        _pool_way(state, way)
        for k in range(len(state.pooled)):
            share = state.pooled[k]
            if share >= _NEGLIGIBLE:
                used += share
                if way == _ADDITIVE:
                    _predict_logits(state, k, share, square)
                else:
                    _predict_counts(state, way, k, share, square)
    for client in range(mean.shape[0]):
        for channel in range(mean.shape[1]):
            first = mean[client, channel] / used
            mean[client, channel] = first
            rest = square[client, channel] / used - first * first
            state.spread[client, channel] = math.sqrt(max(rest, 0.0))
    state.stale[0] = 0


@kernel
def _catch_up(state: Any) -> None:
    if state.stale[0] == 1:
        _estimate(state)


@kernel
def _keep_ages(state: Any, ages: Any) -> None:
    """Explore with clients that are fresh: a loss costs them least."""
    for client in range(len(ages)):
        state.boost[client] = _EAGERNESS * state.optimism[0] / (ages[client] + 1.0)


@select.register(BayesLinksState)
def _select(scheduler: BayesLinksState, t: int, ages: Any, rng: Any, chosen: Any) -> None:
    _keep_ages(scheduler, ages)
    offer_all(chosen)


@select_available.register(BayesLinksState)
def _select_available(
    scheduler: BayesLinksState,
    t: int,
    ages: Any,
    rng: Any,
    available: Any,
    scores: Any,
    chosen: Any,
) -> bool:
    _keep_ages(scheduler, ages)
    offer_available(available, chosen)
    return True


@score.register(BayesLinksState)
def _score(scheduler: BayesLinksState, t: int, scores: Any) -> None:
    _catch_up(scheduler)
    for client in range(scores.shape[0]):
        for channel in range(scores.shape[1]):
            bonus = scheduler.boost[client] * scheduler.spread[client, channel]
            scores[client, channel] = scheduler.mean[client, channel] + bonus


@means.register(BayesLinksState)
def _means(scheduler: BayesLinksState, out: Any) -> None:
    _catch_up(scheduler)
    average_clients(scheduler.mean, out)


@link_mean.register(BayesLinksState)
def _link_mean(scheduler: BayesLinksState, client: int, channel: int) -> float:
    _catch_up(scheduler)
    return scheduler.mean[client, channel]  # type: ignore[no-any-return]


@update.register(BayesLinksState)
def _update(
    scheduler: BayesLinksState, t: int, assignment: Any, outcome: Any, overridden: Any
) -> int:
    _clear(scheduler)
    count = 0
    for client in range(len(assignment)):
        if assignment[client] >= 0 and outcome[client] >= 0:
            _absorb(scheduler, t, client, assignment[client], outcome[client])
            count += 1
            if count % MANY == 0:
                _rescale(scheduler)
    _weigh(scheduler, count >= MANY, FORGET)
    if count > 0:
        _begin_anew(scheduler, t + 1)
    fresh = scheduler.fresh[0]
    for way in range(len(scheduler.weight)):
        for h in range(len(scheduler.hazards)):
            hazard = scheduler.hazards[h]
            for k in range(len(scheduler.since)):
                scheduler.weight[way, h, k] *= 1.0 - hazard
            scheduler.weight[way, h, fresh] += hazard
    scheduler.stale[0] = 1
    return -1


@update_late.register(BayesLinksState)
def _update_late(
    scheduler: BayesLinksState, t: int, when: int, client: int, channel: int, outcome: int
) -> int:
    _clear(scheduler)
    _absorb(scheduler, when, client, channel, outcome)
    _weigh(scheduler, False, TRACE)
    if scheduler.since[scheduler.fresh[0]] <= when:
        _begin_anew(scheduler, t + 1)
    scheduler.stale[0] = 1
    return -1
