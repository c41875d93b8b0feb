"""`bayes` for links that are the same for all clients: the state and its verbs.

A channel's mean is constant for a segment, then is drawn anew; `_segments` weighs the possible
beginnings of the present segment. There is a filter for each of a few hazards, and for channels
that switch alone and together (the paper's breakpoints). Two more forecasters count outcomes by
what came before them (`_contexts`). Each is trusted as far as it has predicted well.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from freshband._jit import cold, kernel
from freshband.ranking import take_available, take_best
from freshband.schedulers._awaited import Awaited, arrive, fade, narrowed, start_awaited, wait
from freshband.schedulers._beginnings import MANY, TRACE
from freshband.schedulers._contexts import (
    Contexts,
    context_of,
    expect_own,
    expect_shared,
    note,
    start_contexts,
)
from freshband.schedulers._drought import is_beaten, note_outcome
from freshband.schedulers._priors import Priors, judge, normalise, pool, start_priors
from freshband.schedulers._segments import (
    HAZARDS,
    Segments,
    average,
    begin,
    changed,
    clear,
    count,
    count_late,
    expect,
    expect_late,
    expect_only,
    may_switch,
    may_switch_alone,
    rescale,
    start_segments,
    stays,
    weigh,
)
from freshband.schedulers._trust import Trust, clear_odds, fold, settle, start_trust, unfold
from freshband.schedulers.base import (
    means,
    score,
    select,
    select_available,
    update,
    update_late,
)
from freshband.states import FIXED, FLAGS, between, declare, record

__all__ = ["BayesState", "start_channels"]

_H = len(HAZARDS)
_SHARED, _OWN = 2 * _H, 2 * _H + 1  # in ``trust``, after the filters of channels alone and together
_IN_CONTEXTS = 0.2  # of the trust at first
FORGET = 0.3  # this share of the trust, divided by the round, is given back to what it was at first
_FORGET_PRIORS = 0.003  # the same for priors, of which only the first rounds of segments tell


class BayesState(NamedTuple):
    """The filters, the trust in each, and their combined estimates."""

    hazards: NDArray[np.float64]  # (H,)
    trust: Trust  # in 2 H + 2 forecasters
    alone: Segments
    together: Segments
    contexts: Contexts
    priors: Priors
    awaited: Awaited
    first: NDArray[np.float64]  # (N, 2) expected rate, alone and together, when last heard
    second: NDArray[np.float64]  # (N, 2) and its square
    mean: NDArray[np.float64]  # (N,) posterior mean
    spread: NDArray[np.float64]  # (N,) posterior standard deviation
    values: NDArray[np.float64]  # (N,) index
    drought: NDArray[np.float64]  # (M,) log-probability, as forecast, of a client's latest losses
    chance: NDArray[np.int8]  # (1,) whether this round is left to chance
    anchor: NDArray[np.int64]  # (N,) changes of a channel before this round are known
    options: NDArray[Any]  # a record: optimism, unrest, alarm
    clock: NDArray[np.int64]  # (1,) the coming round
    stale: NDArray[np.int8]  # (1,) whether the estimates lack outcomes that came late


declare(
    BayesState,
    hazards=FIXED,
    chance=FLAGS,
    anchor=between(0, "round"),
    options={"optimism": between(0), "unrest": FLAGS, "alarm": FLAGS},
    clock=between(0, "round"),
    stale=FLAGS,
)


def start_channels(n_clients: int, n_channels: int, slots: int, **options: float) -> BayesState:
    """Allocate the state: one beginning, and nothing heard."""
    trust = np.full(2 * _H + 2, (1.0 - _IN_CONTEXTS) / (2 * _H))
    trust[_SHARED:] = _IN_CONTEXTS / 2
    priors = start_priors()
    prior = priors.pooled
    rate = prior[0] / prior[1]
    square = rate * (prior[0] + 1.0) / (prior[1] + 1.0)
    return BayesState(
        hazards=np.array(HAZARDS),
        trust=start_trust(trust),
        alone=start_segments(n_channels, n_channels, slots, rate, square),
        together=start_segments(n_channels, 1, slots, rate, square),
        contexts=start_contexts(n_channels),
        priors=priors,
        awaited=start_awaited(n_channels),
        first=np.full((n_channels, 2), rate),
        second=np.full((n_channels, 2), square),
        mean=np.full(n_channels, rate),
        spread=np.full(n_channels, math.sqrt(square - rate * rate)),
        values=np.zeros(n_channels),
        drought=np.zeros(n_clients),
        chance=np.zeros(1, np.int8),
        anchor=np.ones(n_channels, np.int64),
        options=record(**options),
        clock=np.ones(1, np.int64),
        stale=np.zeros(1, np.int8),
    )


@kernel
def _judge_priors(scheduler: Any, channel: int, outcome: int) -> None:
    """Weigh the priors by how they predict an outcome from what is known about the channel."""
    alone, together = scheduler.alone, scheduler.together
    own, own_wins, own_tries = average(
        alone.pooled[channel], alone.wins[channel], alone.tries[channel]
    )
    common, common_wins, common_tries = average(
        together.pooled[0], together.wins[channel], together.tries[channel]
    )
    wins = (own_wins + common_wins) / (own + common)
    judge(scheduler.priors, wins, (own_tries + common_tries) / (own + common), outcome)


@kernel
def _judge_contexts(scheduler: Any, channel: int, t: int, outcome: int) -> None:
    """Weigh the contexts by how they predict an outcome in round ``t``."""
    context = context_of(scheduler.contexts, channel, t)
    if context >= 0:
        shared, _ = expect_shared(scheduler.contexts, channel, context, t)
        own, _ = expect_own(scheduler.contexts, channel, context, shared)
    else:  # they have no opinion
        shared = scheduler.mean[channel]
        own = shared
    scheduler.trust.odds[_SHARED] *= 2.0 * shared if outcome == 1 else 2.0 - 2.0 * shared
    scheduler.trust.odds[_OWN] *= 2.0 * own if outcome == 1 else 2.0 - 2.0 * own


@kernel
def _summarise(segments: Any, group: int, channel: int, way: int, first: Any, second: Any) -> None:
    """Write the expected rate of a channel as of now, and its square."""
    total, rate, square = average(
        segments.pooled[group], segments.rate[channel], segments.square[channel]
    )
    if total > 0.0:
        first[channel, way] = rate / total
        second[channel, way] = square / total
    else:  # no hazard that is trusted has any other beginning than the one just given up
        first[channel, way] = segments.rate[channel, segments.fresh[group]]
        second[channel, way] = segments.square[channel, segments.fresh[group]]


@kernel
def _estimate(scheduler: Any) -> None:
    """Combine the forecasts of the coming round."""
    trust, alone, together = scheduler.trust.now, scheduler.alone, scheduler.together
    prior, contexts, clock = scheduler.priors.pooled, scheduler.contexts, scheduler.clock[0]
    fresh = prior[0] / prior[1]
    fresh_square = fresh * (prior[0] + 1.0) / (prior[1] + 1.0)
    in_filters = 1.0 - trust[_SHARED] - trust[_OWN]
    common = stays(together, 0, trust[_H:_SHARED])
    for channel in range(len(scheduler.mean)):
        single = stays(alone, channel, trust[:_H])
        switched = in_filters - single - common
        mean = (
            single * scheduler.first[channel, 0]
            + common * scheduler.first[channel, 1]
            + switched * fresh
        )
        square = (
            single * scheduler.second[channel, 0]
            + common * scheduler.second[channel, 1]
            + switched * fresh_square
        )
        context = context_of(contexts, channel, clock)
        if context >= 0:
            shared, shared_square = expect_shared(contexts, channel, context, clock)
            own, own_square = expect_own(contexts, channel, context, shared)
            mean += trust[_SHARED] * shared + trust[_OWN] * own
            square += trust[_SHARED] * shared_square + trust[_OWN] * own_square
        else:
            mean /= in_filters
            square /= in_filters
        scheduler.mean[channel] = mean
        scheduler.spread[channel] = math.sqrt(max(square - mean * mean, 0.0))


@kernel
def _rank(scheduler: Any, rng: Any, clients: int) -> None:
    """Write the indices: mean plus a bonus for what is uncertain, which varies a little.

    Where forecasts failed, chance decides about the channels and who gets which.
    """
    scheduler.chance[0] = is_beaten(scheduler.drought, clients, scheduler.clock[0])
    if scheduler.chance[0] == 1:
        for channel in range(len(scheduler.values)):
            scheduler.values[channel] = rng.random()
        return
    trust, hazards = scheduler.trust.now, scheduler.hazards
    hazard, total = 0.0, 0.0
    for h in range(_H):
        hazard += (trust[h] + trust[_H + h]) * hazards[h]
        total += trust[h] + trust[_H + h]
    hazard /= total
    optimism, unrest = scheduler.options[0]["optimism"], scheduler.options[0]["unrest"]
    for channel in range(len(scheduler.values)):
        mean, spread = scheduler.mean[channel], scheduler.spread[channel]
        noise = max(mean * (1.0 - mean), 1e-4)  # the variance of one outcome
        spread = narrowed(scheduler.awaited, channel, spread, noise)
        worth = math.sqrt(math.log(1.0 + spread * spread / (noise * hazard)))
        width = optimism * (1.0 + unrest * (2.0 * rng.random() - 1.0))
        scheduler.values[channel] = mean + width * worth * spread


@cold
def _estimate_again(scheduler: Any) -> None:
    scheduler.stale[0] = 0
    for channel in range(len(scheduler.mean)):
        _summarise(scheduler.alone, channel, channel, 0, scheduler.first, scheduler.second)
        _summarise(scheduler.together, 0, channel, 1, scheduler.first, scheduler.second)
    _estimate(scheduler)


@kernel
def _catch_up(scheduler: Any) -> None:
    """Use what came late, once, however much it was."""
    if scheduler.stale[0] == 1:
        _estimate_again(scheduler)


@select.register(BayesState)
def _select(scheduler: BayesState, t: int, ages: Any, rng: Any, chosen: Any) -> None:
    _catch_up(scheduler)
    _rank(scheduler, rng, len(chosen))
    take_best(scheduler.values, t, chosen)


@select_available.register(BayesState)
def _select_available(
    scheduler: BayesState,
    t: int,
    ages: Any,
    rng: Any,
    available: Any,
    scores: Any,
    chosen: Any,
) -> bool:
    _catch_up(scheduler)
    _rank(scheduler, rng, len(chosen))
    take_available(scheduler.values, t, available, chosen)
    return True


@score.register(BayesState)
def _score(scheduler: BayesState, t: int, scores: Any) -> None:
    _catch_up(scheduler)
    by_chance = scheduler.chance[0] == 1
    for channel in range(scores.shape[1]):
        value, mean = scheduler.values[channel], scheduler.mean[channel]
        scores[0, channel] = value if by_chance else mean


@means.register(BayesState)
def _means(scheduler: BayesState, out: Any) -> None:
    _catch_up(scheduler)
    for channel in range(len(out)):
        out[channel] = scheduler.mean[channel]


@kernel
def _notice(scheduler: Any, t: int, channel: int) -> bool:
    """Whether a change of a channel is believed that was not believed before.

    Contexts explain outcomes without a change: trust in them is not belief in one.
    """
    trust, anchor = scheduler.trust.now, scheduler.anchor
    single, common = 0.0, 0.0
    for h in range(_H):
        single += trust[h]
        common += trust[_H + h]
    alone = changed(scheduler.alone, channel, anchor[channel])
    together = changed(scheduler.together, 0, anchor[channel])
    if single * alone + common * together <= scheduler.options[0]["alarm"]:
        return False
    if common * together > single * alone:
        for other in range(len(anchor)):
            anchor[other] = t
    anchor[channel] = t
    return True


@update.register(BayesState)
def _update(scheduler: BayesState, t: int, assignment: Any, outcome: Any, overridden: Any) -> int:
    alone, together, prior = scheduler.alone, scheduler.together, scheduler.priors.pooled
    trust, odds, shift = scheduler.trust.now, scheduler.trust.odds, scheduler.trust.shift
    clear_odds(scheduler.trust)
    clear(together)
    fade(scheduler.awaited)
    heard = 0
    for j in range(len(assignment)):
        channel, result = assignment[j], outcome[j]
        if channel < 0:
            continue
        scheduler.awaited.used[channel] = t
        if result < 0:
            wait(scheduler.awaited, channel)
            continue
        note_outcome(scheduler.drought, j, scheduler.mean[channel], result)
        _judge_contexts(scheduler, channel, t, result)
        note(scheduler.contexts, channel, t, result)
        _judge_priors(scheduler, channel, result)
        expect_only(alone, channel, result)
        weigh(alone, channel, 1, trust[:_H], odds[:_H], shift[:_H])
        count(alone, channel, result, prior)
        begin(alone, channel, t + 1, prior)
        _summarise(alone, channel, channel, 0, scheduler.first, scheduler.second)
        expect(together, channel, result)
        count(together, channel, result, prior)
        heard += 1
        if heard % MANY == 0:
            rescale(together)
            fold(scheduler.trust)
            normalise(scheduler.priors, 0.0)
    if heard > 0:
        weigh(together, 0, heard, trust[_H:_SHARED], odds[_H:_SHARED], shift[_H:_SHARED])
        begin(together, 0, t + 1, prior)
        if heard >= MANY:
            unfold(scheduler.trust)
        forget = FORGET / (t + 1.0)
        settle(scheduler.trust, forget)
        normalise(scheduler.priors, _FORGET_PRIORS / (t + 1.0))
        pool(scheduler.priors)
        for channel in range(len(scheduler.mean)):
            _summarise(together, 0, channel, 1, scheduler.first, scheduler.second)
    may_switch_alone(alone, scheduler.hazards, scheduler.awaited.used, t)
    may_switch(together, scheduler.hazards)
    scheduler.clock[0] = t + 1
    _estimate(scheduler)
    alarm = -1
    for j in range(len(assignment)):
        if assignment[j] >= 0 and outcome[j] >= 0 and _notice(scheduler, t, assignment[j]):
            alarm = assignment[j]
    return alarm


@update_late.register(BayesState)
def _update_late(
    scheduler: BayesState, t: int, when: int, client: int, channel: int, outcome: int
) -> int:
    alone, together, prior = scheduler.alone, scheduler.together, scheduler.priors.pooled
    odds, shift, trust = scheduler.trust.odds, scheduler.trust.shift, scheduler.trust.now
    arrive(scheduler.awaited, channel, t - when)
    clear_odds(scheduler.trust)
    _judge_priors(scheduler, channel, outcome)
    clear(alone)
    expect_late(alone, channel, channel, outcome, when)
    weigh(alone, channel, 1, trust[:_H], odds[:_H], shift[:_H])
    count_late(alone, channel, channel, outcome, when, prior)
    clear(together)
    expect_late(together, 0, channel, outcome, when)
    weigh(together, 0, 1, trust[_H:_SHARED], odds[_H:_SHARED], shift[_H:_SHARED])
    count_late(together, 0, channel, outcome, when, prior)
    if alone.since[channel, alone.fresh[channel]] <= when:
        begin(alone, channel, t + 1, prior)
    if together.since[0, together.fresh[0]] <= when:
        begin(together, 0, t + 1, prior)
    # Contexts do not count it, because its own is not known any more. They are judged by it as if
    # it were of the coming round: where only losses come late, they must not look perfect.
    _judge_contexts(scheduler, channel, t + 1, outcome)
    settle(scheduler.trust, TRACE)
    normalise(scheduler.priors, TRACE)
    pool(scheduler.priors)
    scheduler.clock[0] = t + 1
    scheduler.stale[0] = 1
    return channel if _notice(scheduler, t, channel) else -1
