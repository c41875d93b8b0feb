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

from freshband._jit import cold, kernel
from freshband.schedulers._beginnings import (
    MANY,
    put_back_powers,
    reweigh_far,
    take_out_powers,
)
from freshband.states import between, declare, not_saved

HAZARDS = (0.5, 0.2, 0.06, 0.02, 5e-3, 1e-3, 1e-4, 1e-7)  # segments of 2 rounds, or for ever
_TINY = 1e-300
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
    logs: NDArray[np.float64]  # (H,) scratch
    ones: NDArray[np.float64]  # (K,)


not_saved(Segments, "likelihood", "power", "logs", "ones")
declare(Segments, fresh=between(0, "likelihood"), since=between(0, "round"))


def start_segments(
    n_channels: int, groups: int, slots: int, rate: float, square: float
) -> Segments:
    """Return one beginning, without outcomes, for every group."""
    hazards = len(HAZARDS)
    weight = np.zeros((groups, hazards, slots))
    weight[:, :, 0] = 1.0
    return Segments(
        wins=np.zeros((n_channels, slots)),
        tries=np.zeros((n_channels, slots)),
        rate=np.full((n_channels, slots), rate),
        square=np.full((n_channels, slots), square),
        weight=weight,
        scale=np.ones((groups, hazards)),
        stay=np.ones((groups, hazards)),
        fresh=np.zeros(groups, np.int64),
        since=np.zeros((groups, slots), np.int64),
        likelihood=np.ones(slots),
        pooled=np.tile(weight[0, 0], (groups, 1)),
        power=np.zeros(slots, np.int64),
        logs=np.zeros(hazards),
        ones=np.ones(slots),
    )


@kernel
def dot(a: Any, b: Any) -> float:
    """Return the sum of products; four partial sums are faster than one."""
    p, q, r, s = 0.0, 0.0, 0.0, 0.0
    whole = len(a) - len(a) % 4
    for k in range(0, whole, 4):
        p += a[k] * b[k]
        q += a[k + 1] * b[k + 1]
        r += a[k + 2] * b[k + 2]
        s += a[k + 3] * b[k + 3]
    for k in range(whole, len(a)):
        p += a[k] * b[k]
    return (p + q) + (r + s)


@kernel
def expect(segments: Any, channel: int, outcome: int) -> None:
    """Multiply the likelihoods by twice the probability of an outcome; a coin's is then 1."""
    likelihood, rate = segments.likelihood, segments.rate[channel]
    if outcome == 1:
        for k in range(len(likelihood)):
            likelihood[k] *= 2.0 * rate[k]
    else:
        for k in range(len(likelihood)):
            likelihood[k] *= 2.0 - 2.0 * rate[k]


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
    wins, tries = segments.wins[channel], segments.tries[channel]
    rate, square = segments.rate[channel], segments.square[channel]
    first, strength = prior[0], prior[1]
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


@kernel
def weigh(segments: Any, group: int, outcomes: int, trust: Any, odds: Any, shift: Any) -> None:
    """Multiply the weights by the likelihoods; their sums go to ``odds``, times 2 to ``shift``."""
    weight, likelihood, pooled = segments.weight[group], segments.likelihood, segments.pooled[group]
    fresh = segments.fresh[group]
    hazards, slots = weight.shape
    for k in range(slots):
        pooled[k] = 0.0
    if outcomes >= MANY and not put_back_powers(likelihood, segments.power):
        _weigh_far(segments, group, trust, odds, shift)
        return
    for h in range(hazards):
        row = weight[h]
        kept = segments.stay[group, h] * segments.scale[group, h]
        switched = (1.0 - segments.stay[group, h]) * likelihood[fresh]
        total = kept * dot(row, likelihood) + switched
        odds[h] *= total
        factor = kept / total
        row[fresh] += (1.0 - segments.stay[group, h]) / kept
        for k in range(slots):
            row[k] *= factor * likelihood[k]
            pooled[k] += trust[h] * row[k]
        segments.scale[group, h] = 1.0
        segments.stay[group, h] = 1.0


@cold
def _weigh_far(segments: Any, group: int, trust: Any, odds: Any, shift: Any) -> None:
    """Do what `weigh` does where likelihoods leave the range of a double."""
    weight, pooled = segments.weight[group], segments.pooled[group]
    hazards, slots = weight.shape
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
    fresh = 0
    for k in range(1, slots):
        if pooled[k] < pooled[fresh]:
            fresh = k
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
        for h in range(len(hazards)):
            segments.stay[group, h] = max(segments.stay[group, h] * (1.0 - hazards[h]), _TINY)


@kernel
def stays(segments: Any, group: int, trust: Any) -> float:
    """Return the trust in hazards, times the probability of no switch since last heard."""
    total = 0.0
    for h in range(len(trust)):
        total += trust[h] * segments.stay[group, h]
    return total


@kernel
def changed(segments: Any, group: int, after: int) -> float:
    """Return how probable a beginning after a round was when the group was last heard."""
    pooled, since = segments.pooled[group], segments.since[group]
    late, total = 0.0, 0.0
    for k in range(len(pooled)):
        total += pooled[k]
        if since[k] > after:
            late += pooled[k]
    return late / total if total > 0.0 else 0.0
