"""An exact Bayes filter for channels that switch at an unknown rate, alone or all together.

A channel's mean is constant for a segment, then is drawn anew. For each possible beginning of the
present segment the filter keeps a weight and the successes and losses since. A round multiplies the
weights by the likelihood of its outcomes, and moves a share of them, the hazard, to a segment that
begins now. There is a filter for each of a few hazards, and for channels that switch alone and
together (the paper's breakpoints); each is weighted by how well it predicts.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from freshband._jit import cold, kernel
from freshband.parameters import Parameters
from freshband.ranking import take_best
from freshband.schedulers.base import means, ranks_by_means, register, select, update
from freshband.states import not_saved

__all__ = ["Bayes"]

_HAZARDS = (1e-4, 1e-3, 1e-2, 0.05, 0.2)  # a mean lasts from 5 rounds to longer than most runs
_FORGET = 1e-3  # share of the trust that is spread evenly, so that none vanishes
_MANY = 32  # outcomes after which likelihoods are rescaled: (1/10^9)^32 is still a number
_FAR = 1000  # powers of two beyond which likelihoods stay scaled
_CLOSE = 2.0**-20  # below this, 1 minus a weight is computed as a sum, not as a difference
_LOG_2 = math.log(2.0)
_ALONE, _TOGETHER = 0, 1


class _Segments(NamedTuple):
    """Possible beginnings of the present segment: K of them, for G groups that switch as one."""

    wins: NDArray[np.float64]  # (N, K) successes of a channel since a beginning
    tries: NDArray[np.float64]  # (N, K)
    weight: NDArray[np.float64]  # (G, H, K) probability of a beginning under a hazard
    fresh: NDArray[np.int64]  # (G,) the beginning without outcomes so far
    room: NDArray[np.float64]  # (K,) scratch
    power: NDArray[np.int64]  # (K,) powers of two taken out of ``room``


not_saved(_Segments, "power")  # empty between rounds


@ranks_by_means
class _BayesState(NamedTuple):
    """The filters, the trust in each, and their combined estimates."""

    hazards: NDArray[np.float64]  # (H,)
    trust: NDArray[np.float64]  # (2, H) in channels switching alone and together, at a hazard
    evidence: NDArray[np.float64]  # (2, H) log-likelihood of a round
    alone: _Segments
    together: _Segments
    heard: NDArray[np.int8]  # (N,) outcomes of this round, -1 for none
    mean: NDArray[np.float64]  # (N,) posterior mean
    values: NDArray[np.float64]  # (N,) index
    optimism: NDArray[np.float64]  # (1,) c


def _start_segments(n_channels: int, groups: int, slots: int) -> _Segments:
    weight = np.zeros((groups, len(_HAZARDS), slots))
    weight[:, :, 0] = 1.0
    return _Segments(
        wins=np.zeros((n_channels, slots)),
        tries=np.zeros((n_channels, slots)),
        weight=weight,
        fresh=np.zeros(groups, np.int64),
        room=np.zeros(slots),
        power=np.zeros(slots, np.int64),
    )


@kernel
def _reweigh(weight: Any, likelihood: Any, evidence: Any) -> None:
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
def _take_out_powers(likelihood: Any, power: Any) -> None:
    """Scale the likelihoods to [1/2, 1) and count the powers of two; this is exact."""
    for k in range(len(likelihood)):
        mantissa, exponent = math.frexp(likelihood[k])
        likelihood[k] = mantissa
        power[k] += exponent


@kernel
def _put_back_powers(likelihood: Any, power: Any) -> bool:
    """Multiply the powers of two back in if all products stay finite; return whether they do."""
    for k in range(len(power)):
        if power[k] > _FAR:
            return False
    for k in range(len(power)):
        likelihood[k] = math.ldexp(likelihood[k], int(power[k]))
    return True


@cold
def _reweigh_far(weight: Any, likelihood: Any, power: Any, evidence: Any) -> None:
    """Do what `_reweigh` does where likelihoods leave the range of a double.

    All products are divided by the largest; those that vanish are 2^1000 times smaller.
    """
    _take_out_powers(likelihood, power)
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
def _pool(weight: Any, trust: Any, pooled: Any) -> None:
    """Write the weights of the beginnings, averaged over hazards by trust."""
    hazards, slots = weight.shape
    for k in range(slots):
        pooled[k] = 0.0
    for h in range(hazards):
        for k in range(slots):
            pooled[k] += trust[h] * weight[h, k]


@kernel
def _begin(weight: Any, hazards: Any, trust: Any, pooled: Any) -> int:
    """Replace the least likely beginning by a fresh one, and return its place."""
    _pool(weight, trust, pooled)
    fresh = 0
    for k in range(1, len(pooled)):
        if pooled[k] < pooled[fresh]:
            fresh = k
    for h in range(len(hazards)):
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
def _hear(segments: Any, hazards: Any, trust: Any, heard: Any, evidence: Any) -> None:
    """Use a round's outcomes, then let every group switch with the probability of each hazard."""
    groups = len(segments.fresh)
    size = len(heard) // groups
    slots = len(segments.room)
    for g in range(groups):
        weight, likelihood = segments.weight[g], segments.room
        for k in range(slots):
            likelihood[k] = 1.0
        count = 0
        for channel in range(g * size, (g + 1) * size):
            outcome = heard[channel]
            if outcome >= 0:
                wins, tries = segments.wins[channel], segments.tries[channel]
                for k in range(slots):
                    hits = wins[k] if outcome == 1 else tries[k] - wins[k]
                    likelihood[k] *= (2.0 + 2.0 * hits) / (2.0 + tries[k])  # doubled: fresh has 1
                    wins[k] += outcome
                    tries[k] += 1.0
                count += 1
                if count % _MANY == 0:
                    if count == _MANY:
                        for k in range(slots):
                            segments.power[k] = 0
                    _take_out_powers(likelihood, segments.power)
        if count > 0:
            if count < _MANY or _put_back_powers(likelihood, segments.power):
                _reweigh(weight, likelihood, evidence)
            else:
                _reweigh_far(weight, likelihood, segments.power, evidence)
            fresh = _begin(weight, hazards, trust, segments.room)
            segments.fresh[g] = fresh
            for channel in range(g * size, (g + 1) * size):
                segments.wins[channel, fresh] = 0.0
                segments.tries[channel, fresh] = 0.0
        for h in range(len(hazards)):
            for k in range(slots):
                weight[h, k] *= 1.0 - hazards[h]
            weight[h, segments.fresh[g]] += hazards[h]


@kernel
def _predict(segments: Any, trust: Any, mean: Any, square: Any) -> None:
    """Add each channel's first two moments, weighted by the trust in these filters."""
    groups = len(segments.fresh)
    size = len(mean) // groups
    slots = len(segments.room)
    for g in range(groups):
        _pool(segments.weight[g], trust, segments.room)
        for channel in range(g * size, (g + 1) * size):
            first, second = 0.0, 0.0
            for k in range(slots):
                a, b = 1.0 + segments.wins[channel, k], 2.0 + segments.tries[channel, k]
                share = segments.room[k] * a / b
                first += share
                second += share * (a + 1.0) / (b + 1.0)
            mean[channel] += first
            square[channel] += second


@kernel
def _weigh_filters(trust: Any, evidence: Any) -> None:
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
            trust[way, h] = (1.0 - _FORGET) * trust[way, h] / total + _FORGET / (ways * hazards)


@select.register(_BayesState)
def _select(scheduler: _BayesState, t: int, ages: Any, rng: Any, chosen: Any) -> None:
    take_best(scheduler.values, t, chosen)


@means.register(_BayesState)
def _means(scheduler: _BayesState, out: Any) -> None:
    for channel in range(len(out)):
        out[channel] = scheduler.mean[channel]


@update.register(_BayesState)
def _update(scheduler: _BayesState, t: int, assignment: Any, outcome: Any, overridden: Any) -> int:
    heard, trust, evidence = scheduler.heard, scheduler.trust, scheduler.evidence
    for channel in range(len(heard)):
        heard[channel] = -1
    for j in range(len(assignment)):
        if assignment[j] >= 0:
            heard[assignment[j]] = outcome[j]
    for way in range(evidence.shape[0]):
        for h in range(evidence.shape[1]):
            evidence[way, h] = 0.0
    _hear(scheduler.alone, scheduler.hazards, trust[_ALONE], heard, evidence[_ALONE])
    _hear(scheduler.together, scheduler.hazards, trust[_TOGETHER], heard, evidence[_TOGETHER])
    _weigh_filters(trust, evidence)

    mean, square = scheduler.mean, scheduler.values
    for channel in range(len(mean)):
        mean[channel] = 0.0
        square[channel] = 0.0
    _predict(scheduler.alone, trust[_ALONE], mean, square)
    _predict(scheduler.together, trust[_TOGETHER], mean, square)
    for channel in range(len(mean)):
        spread = math.sqrt(max(square[channel] - mean[channel] * mean[channel], 0.0))
        scheduler.values[channel] = mean[channel] + scheduler.optimism[0] * spread
    return -1


@register("bayes")
@final
class Bayes(Parameters):
    """Bayes filter of switching channels: the M largest of posterior mean + c standard deviations.

    It learns how often channels switch, from every five rounds to never, and whether one by one or
    all at once; nothing has to be tuned to the channels, and no horizon is needed.

    Parameters
    ----------
    optimism : float >= 0, default 1.5
        The `c` of the index. 0 explores only by chance, which is enough where most channels are in
        use; larger values pay off over many rounds.
    slots : int >= 2, default 32
        The number of beginnings kept per segment, K; a new one replaces the least likely.

    Notes
    -----
    **Deviations.** Not in the paper. Ranks by posterior mean where the paper ranks by (31).

    A round costs `O(N H K)` for `H` = 5 hazards, twenty times as much as `glr-cucb`.

    Examples
    --------
    >>> from freshband import Coordinator
    >>> coordinator = Coordinator("bayes", n_clients=1, n_channels=3, seed=0)
    >>> for t in range(200):
    ...     works = 2 if t < 180 else 0  # the one channel that delivers
    ...     _ = coordinator.observe(coordinator.plan() == works)
    >>> coordinator.plan().tolist()
    [0]

    References
    ----------
    Adams, MacKay, "Bayesian online changepoint detection", 2007.
    Mellor, Shapiro, "Thompson sampling in switching environments with Bayesian online change
    detection", AISTATS 2013.
    Herbster, Warmuth, "Tracking the best expert", Machine Learning 1998 (forgetting the trust).
    """

    optimism: float = Field(default=1.5, ge=0)
    slots: int = Field(default=32, ge=2)

    def start(
        self, n_clients: int, n_channels: int, rng: np.random.Generator, horizon: int | None
    ) -> _BayesState:
        """Allocate the state."""
        n_filters = 2 * len(_HAZARDS)
        return _BayesState(
            hazards=np.array(_HAZARDS),
            trust=np.full((2, len(_HAZARDS)), 1.0 / n_filters),
            evidence=np.zeros((2, len(_HAZARDS))),
            alone=_start_segments(n_channels, n_channels, self.slots),
            together=_start_segments(n_channels, 1, self.slots),
            heard=np.full(n_channels, -1, np.int8),
            mean=np.full(n_channels, 0.5),
            values=np.zeros(n_channels),
            optimism=np.array([self.optimism]),
        )
