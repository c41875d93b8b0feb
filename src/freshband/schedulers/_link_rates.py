"""What `bayes` may assume about links: forecasters of success rates, and what a try is worth.

Each forecaster keeps its numbers in `BayesLinksState`, per beginning: one learns from an outcome in
`absorb`, and predicts in `predict`.
"""

from __future__ import annotations

import math
from typing import Any

from freshband._jit import kernel

SHARED, APART, SPIKED, ADDITIVE, CENTRED = range(5)  # then further centred ones
STRENGTHS = (3.0, 12.0)  # outcomes that the channel's rate is worth to a centred link
SLAB = 0.25  # prior probability that a link differs from its channel
LEVEL_VARIANCE = 2.0  # of a channel's logit: roughly that of a uniform rate
OFFSET_VARIANCE = 4.0  # of a client's logit offset
_SURE = 1e-6  # probabilities and rates that are no counts stay this far from 0 and 1
_PROBIT = math.pi / 8.0  # E[sigmoid(x)] is close to sigmoid(mean / sqrt(1 + variance pi / 8))
_REACH = 15.0  # rounds for which a first try pays; chosen on seeds that no result uses
_ROOT_3 = math.sqrt(3.0)


@kernel
def _chance(rate: float, outcome: int) -> float:
    """Return twice the probability of an outcome: without knowledge it is 1."""
    return 2.0 * rate if outcome == 1 else 2.0 - 2.0 * rate


@kernel
def expected_rate(logit: float, variance: float) -> float:
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
def absorb(state: Any, when: int, client: int, channel: int, outcome: int) -> None:
    """Use one outcome of round ``when`` in all beginnings that are not younger."""
    likelihood = state.likelihood
    for k in range(len(state.since)):
        if state.since[k] > when:
            continue
        wins, tries = state.wins[k, client, channel], state.tries[k, client, channel]
        apart = (1.0 + wins) / (2.0 + tries)
        shared = (1.0 + state.all_wins[k, channel]) / (2.0 + state.all_tries[k, channel])
        likelihood[SHARED, k] *= _chance(shared, outcome)
        likelihood[APART, k] *= _chance(apart, outcome)
        for s in range(len(state.strengths)):
            strength = state.strengths[s]
            centred = (strength * shared + wins) / (strength + tries)
            likelihood[CENTRED + s, k] *= _chance(centred, outcome)

        base = (1.0 + state.base_wins[k, channel]) / (2.0 + state.base_tries[k, channel])
        slab = state.slab[k, client, channel]
        differs, same = slab * _chance(apart, outcome), (1.0 - slab) * _chance(base, outcome)
        likelihood[SPIKED, k] *= differs + same
        slab = min(max(differs / (differs + same), _SURE), 1.0 - _SURE)
        state.slab[k, client, channel] = slab
        state.base_wins[k, channel] += (1.0 - slab) * outcome
        state.base_tries[k, channel] += 1.0 - slab

        logit = state.level[k, channel] + state.offset[k, client]
        variance = state.level_variance[k, channel] + state.offset_variance[k, client]
        likelihood[ADDITIVE, k] *= _chance(expected_rate(logit, variance), outcome)
        _shift_logits(state, k, client, channel, outcome)

        state.wins[k, client, channel] += outcome
        state.tries[k, client, channel] += 1.0
        state.all_wins[k, channel] += outcome
        state.all_tries[k, channel] += 1.0


@kernel
def _gain(mean: float, own: float, sd: float, pulls: float, slab: float, base: float) -> float:
    """Return what trying a link is worth beyond its mean: its index λ less the mean.

    With probability ``slab`` the rate is unknown, uniform with mean ``own`` and deviation ``sd``;
    otherwise it is ``base``. The index is the known rate at which a try breaks even: the try costs
    λ - mean, and tells the rate, which gains E[(rate - λ)+] in each of the rounds that follow.
    There are fewer of these the more ``pulls`` are known, because one more says less. This comes
    close to Gittins' index, and is the root of a quadratic.
    """
    top = min(own + _ROOT_3 * sd, 1.0)
    rounds = 2.0 * _REACH / pulls
    curve = rounds * slab / (4.0 * _ROOT_3 * sd)
    room = max(top - mean, 0.0)
    short = 2.0 * room / (1.0 + math.sqrt(1.0 + 4.0 * curve * room))  # top - λ, if λ >= base
    if top - short < base:
        known = rounds * (1.0 - slab)
        rest = max(room + known * (top - base), 0.0)
        slope = 1.0 + known
        short = 2.0 * rest / (slope + math.sqrt(slope * slope + 4.0 * curve * rest))
    return max(room - short, 0.0)


@kernel
def _predict_counts(state: Any, way: int, k: int, share: float) -> None:
    """Add the mean and the gain of all links under a forecaster that counts."""
    mean, gain = state.mean, state.gain
    n_clients, n_channels = mean.shape
    strength = state.strengths[way - CENTRED] if way >= CENTRED else 0.0
    for client in range(n_clients):
        wins, tries = state.wins[k, client], state.tries[k, client]
        slab = state.slab[k, client]
        for channel in range(n_channels):
            if way in (APART, SPIKED):
                a, b = 1.0 + wins[channel], 2.0 + tries[channel]
            else:
                a, b = 1.0 + state.all_wins[k, channel], 2.0 + state.all_tries[k, channel]
            if way >= CENTRED:
                a = strength * a / b + wins[channel]
                b = strength + tries[channel]
            own = a / b
            rate, differs, base = own, 1.0, 0.0
            if way == SPIKED:
                differs = slab[channel]
                base = (1.0 + state.base_wins[k, channel]) / (2.0 + state.base_tries[k, channel])
                rate = base + differs * (own - base)
            sd = math.sqrt(own * (1.0 - own) / (b + 1.0))
            mean[client, channel] += share * rate
            gain[client, channel] += share * _gain(rate, own, sd, b, differs, base)


@kernel
def _predict_logits(state: Any, k: int, share: float) -> None:
    """Add the mean and the gain of all links under the additive forecaster."""
    n_clients, n_channels = state.mean.shape
    for client in range(n_clients):
        for channel in range(n_channels):
            logit = state.level[k, channel] + state.offset[k, client]
            variance = state.level_variance[k, channel] + state.offset_variance[k, client]
            rate = expected_rate(logit, variance)
            slope = rate * (1.0 - rate)
            around = min(slope * slope * variance, slope / 3.0)
            worth = _gain(rate, rate, math.sqrt(around), slope / around - 1.0, 1.0, 0.0)
            state.mean[client, channel] += share * rate
            state.gain[client, channel] += share * worth


@kernel
def predict(state: Any, way: int, k: int, share: float) -> None:
    """Add the mean and the gain of all links under a forecaster, weighted by its share."""
    if way == ADDITIVE:
        _predict_logits(state, k, share)
    else:
        _predict_counts(state, way, k, share)
