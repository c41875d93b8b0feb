"""Learning from outcomes, in their round or later."""

from __future__ import annotations

from typing import Any

from freshband._jit import cold, entry_point, kernel
from freshband._lending import lend
from freshband._rounds import _noticed, learn
from freshband.fleet._doubts import close_doubts, judge_outcome
from freshband.fleet._state import DELIVERED, LOST, UNKNOWN
from freshband.schedulers.base import update_late


@kernel
def _fold(fleet: Any, place: Any, when: int) -> None:
    """Carry one transmission into the expected last delivery of its client, if it is alive."""
    client = place["client"]
    last = fleet.since[client]
    place["before"] = last
    if place["outcome"] == DELIVERED:
        fleet.since[client] = when
    elif place["outcome"] == UNKNOWN or place["doubted"] == 1:
        fleet.since[client] = place["chance"] * when + (1.0 - place["chance"]) * last


@cold
def close_round(scheduler: Any, fleet: Any, t: int) -> int:
    """End round t with the outcomes known by now: ages move on, and the scheduler learns.

    Returns the channel that changed, or -1.
    """
    sent, desk = fleet.sent, fleet.desk
    row = t % len(sent.rounds)
    entry = 0
    for slot in range(len(desk.assignment)):
        desk.outcome[slot] = UNKNOWN
        if desk.assignment[slot] >= 0:
            place = sent.entries[row, entry]
            outcome = place["outcome"]
            sent.rounds[row]["unknown"] -= outcome != UNKNOWN
            judge_outcome(fleet.doubts, place, t, t)
            _fold(fleet, place, t)
            if outcome <= DELIVERED and place["doubted"] == 0:
                desk.outcome[slot] = outcome
            entry += 1
    close_doubts(fleet.doubts, sent, t)
    return learn(scheduler, desk, t)


@cold
def hear_late(scheduler: Any, fleet: Any, t: int, row: int, entry: int, outcome: int) -> int:
    """Learn an outcome after its round was closed; round t was closed last.

    Returns the channel that changed, or -1.
    """
    sent = fleet.sent
    place, when = sent.entries[row, entry], sent.rounds[row]["round"]
    client = place["client"]
    place["outcome"] = outcome
    sent.rounds[row]["unknown"] -= 1
    judge_outcome(fleet.doubts, place, when, t)
    fleet.since[client] = place["before"]
    _fold(fleet, place, when)
    for later in range(when + 1, t + 1):  # what was sent since builds on it
        following = later % len(sent.rounds)
        for other in range(sent.rounds[following]["size"]):
            if sent.entries[following, other]["client"] == client:
                _fold(fleet, sent.entries[following, other], later)
    if outcome > DELIVERED or place["doubted"] == 1:
        return -1
    return _noticed(update_late(scheduler, t, when, client, place["channel"], outcome))


@cold
def give_up(scheduler: Any, fleet: Any, t: int) -> None:
    """Count outcomes that are still unknown as losses, in the row that round t will use."""
    row = t % len(fleet.sent.rounds)
    if fleet.sent.rounds[row]["unknown"] > 0:
        for entry in range(fleet.sent.rounds[row]["size"]):
            if fleet.sent.entries[row, entry]["outcome"] == UNKNOWN:
                hear_late(scheduler, fleet, t - 1, row, entry, LOST)


@entry_point
def observe(scheduler: Any, fleet: Any, news: Any, t: int, size: int) -> int:
    """End round t with ``news``, the outcomes of its ``size`` transmissions; -1 is no news.

    Returns the channel that changed, or -1.
    """
    scheduler, fleet, news = lend(scheduler), lend(fleet), lend(news)
    row = t % len(fleet.sent.rounds)
    for entry in range(size):
        if news[entry] != UNKNOWN:
            fleet.sent.entries[row, entry]["outcome"] = news[entry]
    return close_round(scheduler, fleet, t)


@entry_point
def observe_late(scheduler: Any, fleet: Any, news: Any, t: int, size: int, when: int) -> int:
    """Learn the outcomes of an earlier round; round t was closed last."""
    scheduler, fleet, news = lend(scheduler), lend(fleet), lend(news)
    row, alarm = when % len(fleet.sent.rounds), -1
    for entry in range(size):
        if news[entry] != UNKNOWN:
            alarm = max(alarm, hear_late(scheduler, fleet, t, row, entry, news[entry]))
    return alarm
