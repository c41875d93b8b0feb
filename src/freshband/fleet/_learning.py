"""Learning from outcomes, in their round or later; entry points of compiled code."""

from __future__ import annotations

from typing import Any

from freshband._jit import cold, entry_point, kernel, lend
from freshband._rounds import _noticed
from freshband.fleet._doubts import close_doubts, judge_outcome
from freshband.fleet._planning import plan_fleet
from freshband.fleet._state import DELIVERED, UNKNOWN
from freshband.schedulers.base import update, update_late


@kernel
def _fold(fleet: Any, row: int, entry: int) -> None:
    """Carry one transmission into the expected last delivery of its client."""
    sent = fleet.sent
    client, outcome = sent.client[row, entry], sent.outcome[row, entry]
    last = fleet.since[client]
    sent.before[row, entry] = last
    if outcome == DELIVERED:
        fleet.since[client] = sent.round[row]
    elif outcome == UNKNOWN:
        chance = sent.chance[row, entry] * fleet.doubts.alive[client]
        fleet.since[client] = chance * sent.round[row] + (1.0 - chance) * last


@kernel
def close_round(scheduler: Any, fleet: Any, t: int) -> int:
    """End round t with the outcomes known by now: ages move on, and the scheduler learns.

    Returns the channel that changed, or -1.
    """
    sent, desk = fleet.sent, fleet.desk
    row = t % len(sent.round)
    entry = 0
    for slot in range(len(desk.assignment)):
        desk.outcome[slot] = UNKNOWN
        if desk.assignment[slot] >= 0:
            outcome = sent.outcome[row, entry]
            if outcome != UNKNOWN:
                sent.unknown[row] -= 1
            teaches = judge_outcome(fleet.doubts, sent, row, entry, t)
            _fold(fleet, row, entry)
            if outcome <= DELIVERED and teaches:
                desk.outcome[slot] = outcome
            entry += 1
    close_doubts(fleet.doubts, sent, t)
    return _noticed(update(scheduler, t, desk.assignment, desk.outcome, desk.overridden))


@cold
def hear_late(scheduler: Any, fleet: Any, t: int, row: int, entry: int, outcome: int) -> int:
    """Learn an outcome after its round was closed; round t was closed last.

    Returns the channel that changed, or -1.
    """
    sent = fleet.sent
    client = sent.client[row, entry]
    sent.outcome[row, entry] = outcome
    sent.unknown[row] -= 1
    teaches = judge_outcome(fleet.doubts, sent, row, entry, t)
    fleet.since[client] = sent.before[row, entry]
    _fold(fleet, row, entry)
    for when in range(sent.round[row] + 1, t + 1):
        later = when % len(sent.round)
        if sent.round[later] == when:
            for other in range(sent.size[later]):
                if sent.client[later, other] == client:
                    _fold(fleet, later, other)
                    break
    if outcome > DELIVERED or not teaches:
        return -1
    channel, when = sent.channel[row, entry], sent.round[row]
    return _noticed(update_late(scheduler, t, when, client, channel, outcome))


@entry_point
def plan(scheduler: Any, matching: Any, fleet: Any, rng: Any, t: int) -> bool:
    """Plan round t; return whether the plan keeps the rules."""
    return plan_fleet(lend(scheduler), lend(matching), lend(fleet), lend(rng), t)


@entry_point
def observe(scheduler: Any, fleet: Any, t: int, row: int, news: Any, closes: bool) -> int:
    """Learn ``news``, an outcome for each transmission in a row; -1 is no news."""
    scheduler, fleet, news = lend(scheduler), lend(fleet), lend(news)
    alarm = -1
    for entry in range(len(news)):
        if news[entry] != UNKNOWN:
            if closes:
                fleet.sent.outcome[row, entry] = news[entry]
            else:
                alarm = max(alarm, hear_late(scheduler, fleet, t, row, entry, news[entry]))
    return close_round(scheduler, fleet, t) if closes else alarm
