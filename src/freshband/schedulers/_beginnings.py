"""Weights of the beginnings of a segment, and the trust in filters: arithmetic of `bayes`."""

from __future__ import annotations

import math
from typing import Any

from freshband._jit import cold, kernel

HAZARDS = (1e-4, 1e-3, 1e-2, 0.05, 0.2)  # a mean lasts from 5 rounds to longer than most runs
MANY = 32  # outcomes after which likelihoods are rescaled: (1/10^9)^32 is still a number
FORGET = 1e-3  # share of the trust that is spread evenly each round, so that none vanishes
TRACE = 1e-9  # the same for an outcome that comes late, of which there may be many in a round
_FAR = 900  # powers of two beyond which likelihoods stay scaled
_CLOSE = 2.0**-20  # below this, 1 minus a weight is computed as a sum, not as a difference
_LOG_2 = math.log(2.0)


@kernel
def reweigh(weight: Any, likelihood: Any, evidence: Any) -> None:
    """Multiply the weights by a likelihood and normalise; its log goes to the evidence."""
    hazards, slots = weight.shape
    for h in range(hazards):
        total = 0.0
        for k in range(slots):
            weight[h, k] *= likelihood[k]
            total += weight[h, k]
        evidence[h] += math.log(total)  # total > 0: a fresh beginning always has a weight
        scale = 1.0 / total
        for k in range(slots):
            weight[h, k] *= scale


@kernel
def take_out_powers(likelihood: Any, power: Any) -> None:
    """Scale the likelihoods to [1/2, 1) and count the powers of two; this is exact."""
    for k in range(len(likelihood)):
        mantissa, exponent = math.frexp(likelihood[k])
        likelihood[k] = mantissa
        power[k] += exponent


@kernel
def put_back_powers(likelihood: Any, power: Any, fresh: int) -> bool:
    """Multiply the powers of two back in if the products stay in range; return whether they do.

    None may overflow, and that of the fresh beginning, which always has a weight, may not vanish.
    """
    if power[fresh] < -_FAR:
        return False
    for k in range(len(power)):
        if power[k] > _FAR:
            return False
    for k in range(len(power)):
        likelihood[k] = math.ldexp(likelihood[k], int(power[k]))
    return True


@cold
def reweigh_far(weight: Any, likelihood: Any, power: Any, evidence: Any) -> None:
    """Do what `reweigh` does where likelihoods leave the range of a double.

    All products are divided by the largest; those that vanish are 2^1000 times smaller.
    """
    take_out_powers(likelihood, power)
    hazards, slots = weight.shape
    for h in range(hazards):
        top = 0
        found = False
        for k in range(slots):
            if weight[h, k] * likelihood[k] > 0.0:
                reach = math.frexp(weight[h, k])[1] + power[k]
                if not found or reach > top:
                    top = reach
                    found = True
        total = 0.0
        for k in range(slots):
            mantissa, exponent = math.frexp(weight[h, k])
            lower = max(exponent + power[k] - top, -2000)
            weight[h, k] = math.ldexp(mantissa * likelihood[k], int(lower))
            total += weight[h, k]
        evidence[h] += math.log(total) + top * _LOG_2
        scale = 1.0 / total
        for k in range(slots):
            weight[h, k] *= scale


@kernel
def pool(weight: Any, trust: Any, pooled: Any) -> None:
    """Write the weights of the beginnings, averaged over hazards by trust."""
    hazards, slots = weight.shape
    for k in range(slots):
        pooled[k] = 0.0
    for h in range(hazards):
        for k in range(slots):
            pooled[k] += trust[h] * weight[h, k]


@kernel
def begin(weight: Any, trust: Any, pooled: Any) -> int:
    """Replace the least likely beginning by a fresh one, and return its place."""
    pool(weight, trust, pooled)
    fresh = 0
    for k in range(1, len(pooled)):
        if pooled[k] < pooled[fresh]:
            fresh = k
    for h in range(len(weight)):
        rest = 1.0 - weight[h, fresh]
        weight[h, fresh] = 0.0
        if rest < _CLOSE:  # the difference has few digits, or none
            rest = 0.0
            for k in range(len(pooled)):
                rest += weight[h, k]
        if rest > 0.0:
            scale = 1.0 / rest
            for k in range(len(pooled)):
                weight[h, k] *= scale
        else:
            weight[h, fresh] = 1.0  # no other beginning is left
    return fresh


@kernel
def weigh_filters(trust: Any, evidence: Any, forget: float) -> None:
    """Update the trust from the filters' predictions; a little of it is spread evenly."""
    ways, hazards = trust.shape
    best = -math.inf
    for way in range(ways):
        for h in range(hazards):
            best = max(best, evidence[way, h])
    total = 0.0
    for way in range(ways):
        for h in range(hazards):
            trust[way, h] *= math.exp(evidence[way, h] - best)
            total += trust[way, h]
    for way in range(ways):
        for h in range(hazards):
            trust[way, h] = (1.0 - forget) * trust[way, h] / total + forget / (ways * hazards)
