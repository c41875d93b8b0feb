"""`bayes` for links that are the same for all clients: the verbs of its state, `_bayes_state`."""

from __future__ import annotations

import math
from typing import Any

from freshband._jit import cold, kernel
from freshband.ranking import take_available, take_best
from freshband.schedulers._awaited import arrive, fade, narrowed, wait
from freshband.schedulers._bayes_state import OWN_CONTEXT, REPEATED, SHARED_CONTEXT, BayesState
from freshband.schedulers._beginnings import MANY, TRACE
from freshband.schedulers._contexts import context_of, expect_own, expect_shared, note
from freshband.schedulers._drought import leave_to_chance, note_late, note_outcome
from freshband.schedulers._periods import expect_repeated, forget_periods, note_repeated
from freshband.schedulers._priors import judge, normalise, pool
from freshband.schedulers._segments import (
    HAZARDS,
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
    stays,
    weigh,
)
from freshband.schedulers._trust import clear_odds, fold, settle, unfold
from freshband.schedulers.base import (
    means,
    score,
    select,
    select_available,
    update,
    update_late,
)

_H = len(HAZARDS)
FORGET = 0.3  # this share of the trust, divided by the round, is given back to what it was at first
_FORGET_PRIORS = 0.003  # the same for priors, of which only the first rounds of segments tell
_ASKED = 1e-3  # trusted less, periods are not asked for a forecast: it takes time


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
    odds = scheduler.trust.odds
    odds[SHARED_CONTEXT] *= 2.0 * shared if outcome == 1 else 2.0 - 2.0 * shared
    odds[OWN_CONTEXT] *= 2.0 * own if outcome == 1 else 2.0 - 2.0 * own


@kernel
def _judge_periods(scheduler: Any, channel: int, t: int, outcome: int) -> None:
    """Weigh the periods by how they predict an outcome of round ``t``, and count it."""
    likelihood = note_repeated(scheduler.periods, channel, t, outcome)
    scheduler.trust.odds[REPEATED] *= 2.0 * likelihood


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
    in_filters = 1.0 - trust[SHARED_CONTEXT] - trust[OWN_CONTEXT] - trust[REPEATED]
    common = stays(together, 0, trust[_H : 2 * _H])
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
        asked = in_filters
        context = context_of(contexts, channel, clock)
        if context >= 0:
            shared, shared_square = expect_shared(contexts, channel, context, clock)
            own, own_square = expect_own(contexts, channel, context, shared)
            mean += trust[SHARED_CONTEXT] * shared + trust[OWN_CONTEXT] * own
            square += trust[SHARED_CONTEXT] * shared_square + trust[OWN_CONTEXT] * own_square
            asked += trust[SHARED_CONTEXT] + trust[OWN_CONTEXT]
        if trust[REPEATED] >= _ASKED:
            repeated, repeated_square = expect_repeated(scheduler.periods, channel, clock)
            mean += trust[REPEATED] * repeated
            square += trust[REPEATED] * repeated_square
            asked += trust[REPEATED]
        mean /= asked
        square /= asked
        scheduler.mean[channel] = mean
        scheduler.spread[channel] = math.sqrt(max(square - mean * mean, 0.0))


@kernel
def _rank(scheduler: Any, rng: Any, clients: int) -> None:
    """Write the indices: mean plus a bonus for what is uncertain, which varies a little.

    Where forecasts failed, chance decides about the channels and who gets which.
    """
    clock = scheduler.clock[0]
    scheduler.chance[0] = leave_to_chance(scheduler.drought, clients, clock, rng)
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
        note_outcome(scheduler.drought, j, t, scheduler.mean[channel], result)
        _judge_contexts(scheduler, channel, t, result)
        _judge_periods(scheduler, channel, t, result)
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
        weigh(together, 0, heard, trust[_H : 2 * _H], odds[_H : 2 * _H], shift[_H : 2 * _H])
        begin(together, 0, t + 1, prior)
        if heard >= MANY:
            unfold(scheduler.trust)
        forget = FORGET / (t + 1.0)
        settle(scheduler.trust, forget)
        forget_periods(scheduler.periods, forget)
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
    note_late(scheduler.drought, client, outcome)
    clear_odds(scheduler.trust)
    _judge_priors(scheduler, channel, outcome)
    clear(alone)
    expect_late(alone, channel, channel, outcome, when)
    weigh(alone, channel, 1, trust[:_H], odds[:_H], shift[:_H])
    count_late(alone, channel, channel, outcome, when, prior)
    clear(together)
    expect_late(together, 0, channel, outcome, when)
    weigh(together, 0, 1, trust[_H : 2 * _H], odds[_H : 2 * _H], shift[_H : 2 * _H])
    count_late(together, 0, channel, outcome, when, prior)
    if alone.since[channel, alone.fresh[channel]] <= when:
        begin(alone, channel, t + 1, prior)
    if together.since[0, together.fresh[0]] <= when:
        begin(together, 0, t + 1, prior)
    # Contexts do not count it, because its own is not known any more. They are judged by it as if
    # it were of the coming round: where only losses come late, they must not look perfect.
    _judge_contexts(scheduler, channel, t + 1, outcome)
    _judge_periods(scheduler, channel, when, outcome)
    settle(scheduler.trust, TRACE)
    forget_periods(scheduler.periods, TRACE)
    normalise(scheduler.priors, TRACE)
    pool(scheduler.priors)
    scheduler.clock[0] = t + 1
    scheduler.stale[0] = 1
    return channel if _notice(scheduler, t, channel) else -1
