"""Possible beginnings of the present segment of a channel, and how likely each is: for `bayes`.

A channel's success rate is constant for a segment, then it is drawn anew. For each of K possible
beginnings of the present segment there are the successes and losses since, and for each of H
hazards (probabilities of a switch per round) a weight. Channels form groups that switch as one:
every channel alone, or all together.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from freshband._jit import cold, kernel, unaliased
from freshband.schedulers._beginnings import (
    MANY,
    put_back_powers,
    reweigh_far,
    take_out_powers,
)
from freshband.states import between, declare, not_saved

HAZARDS = (0.5, 0.2, 0.06, 0.02, 5e-3, 1e-3, 1e-4, 1e-7)  # segments of 2 rounds, or for ever
_H = len(HAZARDS)
_TINY = 1e-300
_IDLE = 0.3  # this, divided by the round, is added to the hazards of a channel that is not used
_CLOSE = 2.0**-20  # below this, 1 minus a weight is computed as a sum, not as a difference
_LOG_2 = math.log(2.0)


class Segments(NamedTuple):
    """K beginnings, H hazards, G groups of N channels."""

    wins: NDArray[np.float64]  # (N, K) successes of a channel since a beginning
    tries: NDArray[np.float64]  # (N, K)
    rate: NDArray[np.float64]  # (N, K) expected success rate
    square: NDArray[np.float64]  # (N, K) expected square of it
    weight: NDArray[np.float64]  # (G, H, K) probability of a beginning when last heard
    scale: NDArray[np.float64]  # (G, H) by which these are to be multiplied
    stay: NDArray[np.float64]  # (G, H) probability of no switch since then
    fresh: NDArray[np.int64]  # (G,) the beginning without outcomes so far
    since: NDArray[np.int64]  # (G, K) the first round of a beginning
    likelihood: NDArray[np.float64]  # (K,) scratch
    pooled: NDArray[np.float64]  # (G, K) weights when last heard, averaged over hazards by trust
    power: NDArray[np.int64]  # (K,) powers of two taken out of ``likelihood``
    logs: NDArray[np.float64]  # (H,) scratch: logarithms, or factors


not_saved(Segments, "likelihood", "power", "logs")
declare(Segments, fresh=between(0, "likelihood"), since=between(0, "round"))


def start_segments(
    n_channels: int, groups: int, slots: int, rate: float, square: float
) -> Segments:
    """Return one beginning, without outcomes, for every group."""
    weight = np.zeros((groups, _H, slots))
    weight[:, :, 0] = 1.0
    return Segments(
        wins=np.zeros((n_channels, slots)),
        tries=np.zeros((n_channels, slots)),
        rate=np.full((n_channels, slots), rate),
        square=np.full((n_channels, slots), square),
        weight=weight,
        scale=np.ones((groups, _H)),
        stay=np.ones((groups, _H)),
        fresh=np.zeros(groups, np.int64),
        since=np.zeros((groups, slots), np.int64),
        likelihood=np.ones(slots),
        pooled=np.tile(weight[0, 0], (groups, 1)),
        power=np.zeros(slots, np.int64),
        logs=np.zeros(_H),
    )


@kernel
def dot(a: Any, b: Any) -> float:
    """Return the sum of products, computed in eight parts, which fill a vector of the CPU."""
    p0, p1, p2, p3, p4, p5, p6, p7 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    whole = len(a) - len(a) % 8
    for k in range(0, whole, 8):
        p0 += a[k] * b[k]
        p1 += a[k + 1] * b[k + 1]
        p2 += a[k + 2] * b[k + 2]
        p3 += a[k + 3] * b[k + 3]
        p4 += a[k + 4] * b[k + 4]
        p5 += a[k + 5] * b[k + 5]
        p6 += a[k + 6] * b[k + 6]
        p7 += a[k + 7] * b[k + 7]
    for k in range(whole, len(a)):
        p0 += a[k] * b[k]
    return ((p0 + p4) + (p2 + p6)) + ((p1 + p5) + (p3 + p7))


@kernel
def average(weights: Any, a: Any, b: Any) -> tuple[float, float, float]:
    """Return the sum of weights, and those of their products with ``a`` and ``b``."""
    w0, w1, w2, w3 = 0.0, 0.0, 0.0, 0.0
    a0, a1, a2, a3 = 0.0, 0.0, 0.0, 0.0
    b0, b1, b2, b3 = 0.0, 0.0, 0.0, 0.0
    whole = len(weights) - len(weights) % 4
    for k in range(0, whole, 4):
        w0 += weights[k]
        w1 += weights[k + 1]
        w2 += weights[k + 2]
        w3 += weights[k + 3]
        a0 += weights[k] * a[k]
        a1 += weights[k + 1] * a[k + 1]
        a2 += weights[k + 2] * a[k + 2]
        a3 += weights[k + 3] * a[k + 3]
        b0 += weights[k] * b[k]
        b1 += weights[k + 1] * b[k + 1]
        b2 += weights[k + 2] * b[k + 2]
        b3 += weights[k + 3] * b[k + 3]
    for k in range(whole, len(weights)):
        w0 += weights[k]
        a0 += weights[k] * a[k]
        b0 += weights[k] * b[k]
    return (w0 + w2) + (w1 + w3), (a0 + a2) + (a1 + a3), (b0 + b2) + (b1 + b3)


@kernel
def expect(segments: Any, channel: int, outcome: int) -> None:
    """Multiply the likelihoods by twice the probability of an outcome; a coin's is then 1."""
    _expect(segments.likelihood, segments.rate[channel], outcome)


@unaliased
def _expect(likelihood: Any, rate: Any, outcome: int) -> None:
    if outcome == 1:
        for k in range(len(likelihood)):
            likelihood[k] *= 2.0 * rate[k]
    else:
        for k in range(len(likelihood)):
            likelihood[k] *= 2.0 - 2.0 * rate[k]


@kernel
def expect_only(segments: Any, channel: int, outcome: int) -> None:
    """Do so for the only outcome of a group; nothing needs to be cleared before."""
    _expect_only(segments.likelihood, segments.rate[channel], outcome)


@unaliased
def _expect_only(likelihood: Any, rate: Any, outcome: int) -> None:
    if outcome == 1:
        for k in range(len(likelihood)):
            likelihood[k] = 2.0 * rate[k]
    else:
        for k in range(len(likelihood)):
            likelihood[k] = 2.0 - 2.0 * rate[k]


@kernel
def expect_late(segments: Any, group: int, channel: int, outcome: int, when: int) -> None:
    """Do so for an outcome of round ``when``: it says nothing about segments that began later."""
    likelihood, rate, since = segments.likelihood, segments.rate[channel], segments.since[group]
    for k in range(len(likelihood)):
        if since[k] <= when:
            likelihood[k] *= 2.0 * rate[k] if outcome == 1 else 2.0 - 2.0 * rate[k]


@kernel
def count(segments: Any, channel: int, outcome: int, prior: Any) -> None:
    """Add an outcome to every beginning, and compute the rates under a Beta prior."""
    _count(
        segments.wins[channel],
        segments.tries[channel],
        segments.rate[channel],
        segments.square[channel],
        outcome,
        prior[0],
        prior[1],
    )


@unaliased
def _count(
    wins: Any, tries: Any, rate: Any, square: Any, outcome: int, first: float, strength: float
) -> None:
    for k in range(len(wins)):
        wins[k] += outcome
        tries[k] += 1.0
        known = strength + tries[k]
        inverse = 1.0 / (known * (known + 1.0))
        mean = (first + wins[k]) * (known + 1.0) * inverse
        rate[k] = mean
        square[k] = mean * (first + wins[k] + 1.0) * known * inverse


@kernel
def count_late(
    segments: Any, group: int, channel: int, outcome: int, when: int, prior: Any
) -> None:
    """Do so for an outcome of round ``when``."""
    since = segments.since[group]
    for k in range(len(since)):
        if since[k] <= when:
            segments.wins[channel, k] += outcome
            segments.tries[channel, k] += 1.0
            _expect_rate(segments, channel, k, prior)


@kernel
def _expect_rate(segments: Any, channel: int, k: int, prior: Any) -> None:
    known = prior[1] + segments.tries[channel, k]
    mean = (prior[0] + segments.wins[channel, k]) / known
    segments.rate[channel, k] = mean
    segments.square[channel, k] = mean * (known * mean + 1.0) / (known + 1.0)


@kernel
def clear(segments: Any) -> None:
    """Prepare the likelihoods for outcomes."""
    for k in range(len(segments.likelihood)):
        segments.likelihood[k] = 1.0
        segments.power[k] = 0


@kernel
def rescale(segments: Any) -> None:
    """Keep the likelihoods in range; call it after every `MANY` outcomes."""
    take_out_powers(segments.likelihood, segments.power)


@unaliased
def _reweigh(weight: Any, likelihood: Any, factor: Any, trust: Any, pooled: Any) -> None:
    """Multiply the weights by the likelihoods, and average them over hazards."""
    for k in range(len(pooled)):
        total = 0.0
        for h in range(_H):  # unrolled, so that several beginnings fill a vector of the CPU
            weight[h, k] *= factor[h] * likelihood[k]
            total += trust[h] * weight[h, k]
        pooled[k] = total


@kernel
def weigh(segments: Any, group: int, outcomes: int, trust: Any, odds: Any, shift: Any) -> None:
    """Multiply the weights by the likelihoods; their sums go to ``odds``, times 2 to ``shift``."""
    weight, likelihood, pooled = segments.weight[group], segments.likelihood, segments.pooled[group]
    fresh = segments.fresh[group]
    if outcomes >= MANY and not put_back_powers(likelihood, segments.power, fresh):
        _weigh_far(segments, group, trust, odds, shift)
        return
    factor = segments.logs
    for h in range(_H):
        row = weight[h]
        kept = segments.stay[group, h] * segments.scale[group, h]
        switched = (1.0 - segments.stay[group, h]) * likelihood[fresh]
        total = kept * dot(row, likelihood) + switched
        odds[h] *= total
        factor[h] = kept / total
        row[fresh] += (1.0 - segments.stay[group, h]) / kept
        segments.scale[group, h] = 1.0
        segments.stay[group, h] = 1.0
    _reweigh(weight, likelihood, factor, trust, pooled)


@cold
def _weigh_far(segments: Any, group: int, trust: Any, odds: Any, shift: Any) -> None:
    """Do what `weigh` does where likelihoods leave the range of a double."""
    weight, pooled = segments.weight[group], segments.pooled[group]
    hazards, slots = weight.shape
    for k in range(slots):
        pooled[k] = 0.0
    for h in range(hazards):
        kept = segments.stay[group, h] * segments.scale[group, h]
        for k in range(slots):
            weight[h, k] *= kept
        weight[h, segments.fresh[group]] += 1.0 - segments.stay[group, h]
        segments.scale[group, h] = 1.0
        segments.stay[group, h] = 1.0
        segments.logs[h] = 0.0
    reweigh_far(weight, segments.likelihood, segments.power, segments.logs)
    for h in range(hazards):
        powers = math.floor(segments.logs[h] / _LOG_2)
        odds[h] *= math.exp(segments.logs[h] - powers * _LOG_2)
        shift[h] += int(powers)
        for k in range(slots):
            pooled[k] += trust[h] * weight[h, k]


@kernel
def begin(segments: Any, group: int, t: int, prior: Any) -> None:
    """Let a segment begin in round ``t`` in place of the least likely beginning."""
    weight, pooled = segments.weight[group], segments.pooled[group]
    hazards, slots = weight.shape
    fresh, least = 0, pooled[0]
    for k in range(1, slots):
        if pooled[k] < least:
            fresh, least = k, pooled[k]
    for h in range(hazards):
        rest = 1.0 - weight[h, fresh]
        weight[h, fresh] = 0.0
        if rest < _CLOSE:  # the difference has few digits, or none
            rest = 0.0
            for k in range(slots):
                rest += weight[h, k]
        if rest > 0.0:
            segments.scale[group, h] = 1.0 / rest
        else:
            weight[h, fresh] = 1.0  # no other beginning is left
    pooled[fresh] = 0.0
    segments.fresh[group] = fresh
    segments.since[group, fresh] = t
    size = len(segments.wins) // len(segments.fresh)
    square = prior[0] / prior[1] * (prior[0] + 1.0) / (prior[1] + 1.0)
    for channel in range(group * size, (group + 1) * size):
        segments.wins[channel, fresh] = 0.0
        segments.tries[channel, fresh] = 0.0
        segments.rate[channel, fresh] = prior[0] / prior[1]
        segments.square[channel, fresh] = square


@kernel
def may_switch(segments: Any, hazards: Any) -> None:
    """Let every group switch with the probability of each hazard."""
    for group in range(len(segments.stay)):
        for h in range(_H):
            segments.stay[group, h] = max(segments.stay[group, h] * (1.0 - hazards[h]), _TINY)


@kernel
def may_switch_alone(segments: Any, hazards: Any, used: Any, t: int) -> None:
    """Do so for channels, of which those not ``used`` in round ``t`` may switch more often.

    That the channels in use are constant says less about those that are not: one that was bad for
    long may have been repaired. A share of `1 - (t0 / t)^0.3` is believed to have switched between
    rounds t0 and t, so that it is tried again whenever the time since t0 has grown enough.
    """
    more = 1.0 - _IDLE / (t + 1.0)
    for channel in range(len(segments.stay)):
        kept = 1.0 if used[channel] == t else more
        for h in range(_H):
            stay = segments.stay[channel, h] * (kept * (1.0 - hazards[h]))
            segments.stay[channel, h] = max(stay, _TINY)


@kernel
def stays(segments: Any, group: int, trust: Any) -> float:
    """Return the trust in hazards, times the probability of no switch since last heard."""
    return dot(trust, segments.stay[group])


@kernel
def changed(segments: Any, group: int, after: int) -> float:
    """Return how probable a beginning after a round was when the group was last heard."""
    pooled, since, late = segments.pooled[group], segments.since[group], segments.likelihood
    for k in range(len(pooled)):
        late[k] = 1.0 if since[k] > after else 0.0
    total, share, _ = average(pooled, late, late)
    return share / total if total > 0.0 else 0.0
