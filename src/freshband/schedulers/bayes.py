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
from freshband.ranking import take_available, take_best
from freshband.schedulers._bayes_links import BayesLinksState, start_links
from freshband.schedulers._beginnings import (
    FORGET,
    HAZARDS,
    MANY,
    TRACE,
    begin,
    pool,
    put_back_powers,
    reweigh,
    reweigh_far,
    take_out_powers,
    weigh_filters,
)
from freshband.schedulers.base import (
    means,
    ranks_by_means,
    register,
    select,
    select_available,
    update,
    update_late,
)
from freshband.states import FIXED, FLAGS, between, declare, newer, not_saved

__all__ = ["Bayes"]

_ALONE, _TOGETHER = 0, 1


class _Segments(NamedTuple):
    """Possible beginnings of the present segment: K of them, for G groups that switch as one."""

    wins: NDArray[np.float64]  # (N, K) successes of a channel since a beginning
    tries: NDArray[np.float64]  # (N, K)
    weight: NDArray[np.float64]  # (G, H, K) probability of a beginning under a hazard
    fresh: NDArray[np.int64]  # (G,) the beginning without outcomes so far
    since: NDArray[np.int64]  # (G, K) the first round of a beginning
    room: NDArray[np.float64]  # (K,) scratch
    power: NDArray[np.int64]  # (K,) powers of two taken out of ``room``


not_saved(_Segments, "power")  # empty between rounds
newer(_Segments, "since")  # of an older state, every outcome belongs to every beginning
declare(_Segments, fresh=between(0, "room"), since=between(0, "round"))


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
    stale: NDArray[np.int8]  # (1,) whether the estimates lack outcomes that came late


newer(_BayesState, "stale")
declare(_BayesState, hazards=FIXED, heard=between(-1, 1), optimism=FIXED, stale=FLAGS)


def _start_segments(n_channels: int, groups: int, slots: int) -> _Segments:
    weight = np.zeros((groups, len(HAZARDS), slots))
    weight[:, :, 0] = 1.0
    return _Segments(
        wins=np.zeros((n_channels, slots)),
        tries=np.zeros((n_channels, slots)),
        weight=weight,
        fresh=np.zeros(groups, np.int64),
        since=np.zeros((groups, slots), np.int64),
        room=np.zeros(slots),
        power=np.zeros(slots, np.int64),
    )


@kernel
def _begin_anew(segments: Any, group: int, size: int, trust: Any, t: int) -> None:
    """Let a segment begin in round ``t`` for one group, in place of the least likely beginning."""
    fresh = begin(segments.weight[group], trust, segments.room)
    segments.fresh[group] = fresh
    segments.since[group, fresh] = t
    for channel in range(group * size, (group + 1) * size):
        segments.wins[channel, fresh] = 0.0
        segments.tries[channel, fresh] = 0.0


@kernel
def _hear(segments: Any, hazards: Any, trust: Any, t: int, heard: Any, evidence: Any) -> None:
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
                if count % MANY == 0:
                    if count == MANY:
                        for k in range(slots):
                            segments.power[k] = 0
                    take_out_powers(likelihood, segments.power)
        if count > 0:
            if count < MANY or put_back_powers(likelihood, segments.power):
                reweigh(weight, likelihood, evidence)
            else:
                reweigh_far(weight, likelihood, segments.power, evidence)
            _begin_anew(segments, g, size, trust, t + 1)
        for h in range(len(hazards)):
            for k in range(slots):
                weight[h, k] *= 1.0 - hazards[h]
            weight[h, segments.fresh[g]] += hazards[h]


@kernel
def _hear_late(
    segments: Any, trust: Any, t: int, when: int, channel: int, outcome: int, evidence: Any
) -> None:
    """Use an outcome of round ``when``; it says nothing about segments that began after it."""
    size = len(segments.wins) // len(segments.fresh)
    group = channel // size
    since, likelihood = segments.since[group], segments.room
    wins, tries = segments.wins[channel], segments.tries[channel]
    for k in range(len(likelihood)):
        likelihood[k] = 1.0
        if since[k] <= when:
            hits = wins[k] if outcome == 1 else tries[k] - wins[k]
            likelihood[k] = (2.0 + 2.0 * hits) / (2.0 + tries[k])
            wins[k] += outcome
            tries[k] += 1.0
    reweigh(segments.weight[group], likelihood, evidence)
    if since[segments.fresh[group]] <= when:
        _begin_anew(segments, group, size, trust, t + 1)


@kernel
def _predict(segments: Any, trust: Any, mean: Any, square: Any) -> None:
    """Add each channel's first two moments, weighted by the trust in these filters."""
    groups = len(segments.fresh)
    size = len(mean) // groups
    slots = len(segments.room)
    for g in range(groups):
        pool(segments.weight[g], trust, segments.room)
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
def _estimate(scheduler: Any) -> None:
    """Combine the filters' predictions into means and indices."""
    mean, square, trust = scheduler.mean, scheduler.values, scheduler.trust
    for channel in range(len(mean)):
        mean[channel] = 0.0
        square[channel] = 0.0
    _predict(scheduler.alone, trust[_ALONE], mean, square)
    _predict(scheduler.together, trust[_TOGETHER], mean, square)
    for channel in range(len(mean)):
        spread = math.sqrt(max(square[channel] - mean[channel] * mean[channel], 0.0))
        scheduler.values[channel] = mean[channel] + scheduler.optimism[0] * spread
    scheduler.stale[0] = 0


@cold
def _estimate_again(scheduler: Any) -> None:
    _estimate(scheduler)


@kernel
def _catch_up(scheduler: Any) -> None:
    """Use what came late, once, however much it was."""
    if scheduler.stale[0] == 1:
        _estimate_again(scheduler)


@select.register(_BayesState)
def _select(scheduler: _BayesState, t: int, ages: Any, rng: Any, chosen: Any) -> None:
    _catch_up(scheduler)
    take_best(scheduler.values, t, chosen)


@select_available.register(_BayesState)
def _select_available(
    scheduler: _BayesState,
    t: int,
    ages: Any,
    rng: Any,
    available: Any,
    scores: Any,
    chosen: Any,
) -> bool:
    _catch_up(scheduler)
    take_available(scheduler.values, t, available, chosen)
    return True


@means.register(_BayesState)
def _means(scheduler: _BayesState, out: Any) -> None:
    _catch_up(scheduler)
    for channel in range(len(out)):
        out[channel] = scheduler.mean[channel]


@kernel
def _clear_evidence(evidence: Any) -> None:
    for way in range(evidence.shape[0]):
        for h in range(evidence.shape[1]):
            evidence[way, h] = 0.0


@update.register(_BayesState)
def _update(scheduler: _BayesState, t: int, assignment: Any, outcome: Any, overridden: Any) -> int:
    heard, trust, evidence = scheduler.heard, scheduler.trust, scheduler.evidence
    for channel in range(len(heard)):
        heard[channel] = -1
    for j in range(len(assignment)):
        if assignment[j] >= 0:
            heard[assignment[j]] = outcome[j]
    _clear_evidence(evidence)
    _hear(scheduler.alone, scheduler.hazards, trust[_ALONE], t, heard, evidence[_ALONE])
    _hear(scheduler.together, scheduler.hazards, trust[_TOGETHER], t, heard, evidence[_TOGETHER])
    weigh_filters(trust, evidence, FORGET)
    _estimate(scheduler)
    return -1


@update_late.register(_BayesState)
def _update_late(
    scheduler: _BayesState, t: int, when: int, client: int, channel: int, outcome: int
) -> int:
    trust, evidence = scheduler.trust, scheduler.evidence
    _clear_evidence(evidence)
    _hear_late(scheduler.alone, trust[_ALONE], t, when, channel, outcome, evidence[_ALONE])
    _hear_late(scheduler.together, trust[_TOGETHER], t, when, channel, outcome, evidence[_TOGETHER])
    weigh_filters(trust, evidence, TRACE)
    scheduler.stale[0] = 1
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

    **Links that differ.** Where links may differ per client, every link is scored. Six forecasters
    are weighted by how well they predict: links are shared; all differ; they scatter around the
    channel's rate, closely or widely; a quarter of them differ; or a client adds the same to the
    logit of every channel. All links change together. ``optimism`` scales an index that is close
    to Gittins', divided by the client's age, and half as many beginnings are kept.

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
        n_filters = 2 * len(HAZARDS)
        return _BayesState(
            hazards=np.array(HAZARDS),
            trust=np.full((2, len(HAZARDS)), 1.0 / n_filters),
            evidence=np.zeros((2, len(HAZARDS))),
            alone=_start_segments(n_channels, n_channels, self.slots),
            together=_start_segments(n_channels, 1, self.slots),
            heard=np.full(n_channels, -1, np.int8),
            mean=np.full(n_channels, 0.5),
            values=np.zeros(n_channels),
            optimism=np.array([self.optimism]),
            stale=np.zeros(1, np.int8),
        )

    def start_links(
        self, n_clients: int, n_channels: int, rng: np.random.Generator, horizon: int | None
    ) -> BayesLinksState:
        """Allocate the state of links that may differ per client."""
        return start_links(n_clients, n_channels, max(2, self.slots // 2), self.optimism)
