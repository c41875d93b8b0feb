"""Planning a round for any fleet: who may send, and where.

Every round is reduced to the problem of the paper: of all clients that are present, the most urgent
ones get a *slot* each, and scheduler and matching see the slots alone. With a slot for every client
this is `freshband._rounds`, bit for bit.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from freshband._jit import cold, entry_point, is_ours, kernel, shut, verb
from freshband._lending import lend
from freshband._rounds import Desk, _exist, assign_chosen, keeps_rules
from freshband.fleet._state import UNKNOWN, Everybody, OwnLinks, SharedLinks
from freshband.matching.base import match_links, serve
from freshband.ranking import draw_to_front
from freshband.schedulers.base import link_mean, means, override, score, select, select_available

_SURE = 0.05  # no estimate is closer to 0 or 1: some schedulers' are after a single outcome


@kernel
def _effective_age(age: float, factor: float) -> float:
    """Return the x for which x (x + 1) is ``factor`` times age (age + 1)."""
    if factor == 1.0:
        return age
    urgency = factor * age * (age + 1.0)
    return 2.0 * urgency / (1.0 + math.sqrt(1.0 + 4.0 * urgency))  # exact for small ones too


@kernel
def _write_ages(fleet: Any, t: int) -> int:
    """Write the effective ages at the end of the previous round; return how many are present."""
    here = 0
    for i in range(len(fleet.since)):
        if fleet.present[i] == 1:
            factor = fleet.weight[i] * fleet.doubts.alive[i]
            fleet.ages[i] = _effective_age(t - fleet.since[i], factor)
            here += 1
        else:
            fleet.ages[i] = 0.0
    return here


def _plan(scheduler: Any, matching: Any, fleet: Any, rng: Any, t: int) -> bool:
    """Fill slots and assign channels for round t; what is sent is entered in ``fleet.sent``.

    Returns whether the plan keeps the rules, as `plan_round` does.
    """
    scheduler, matching, fleet, rng = lend(scheduler), lend(matching), lend(fleet), lend(rng)
    free = 0
    for channel in range(len(fleet.available)):
        free += fleet.available[channel]
    here = _write_ages(fleet, t)
    for slot in range(len(fleet.desk.assignment)):
        fleet.desk.assignment[slot] = -1
        fleet.desk.overridden[slot] = 0
    if not _assign_slots(fleet.links, scheduler, matching, fleet, rng, t, here, free):
        return False
    if free < len(fleet.available):
        _drop_missing(fleet)
    _enter(scheduler, fleet, t)
    return True


plan = entry_point(_plan)
plan_in_loop = cold(_plan)


@partial(verb, inline=False)
def _assign_slots(
    links: Any, scheduler: Any, matching: Any, fleet: Any, rng: Any, t: int, here: int, free: int
) -> bool:
    """Give slots to clients and channels to slots; return whether the plan keeps the rules.

    ``here`` is the number of clients that are present, ``free`` that of available channels.
    """
    return False


@_assign_slots.register(SharedLinks)
def _assign_shared(
    links: Any, scheduler: Any, matching: Any, fleet: Any, rng: Any, t: int, here: int, free: int
) -> bool:
    slots = min(min(here, free), links.most[0])
    fleet.slots[0] = slots
    if slots == 0:
        return True
    _fill_slots(matching, fleet, t, rng, slots, here)
    desk = _used(fleet.desk, slots)
    if slots == len(fleet.desk.chosen) and free == len(fleet.available):
        _select(scheduler, t, desk.ages, rng, desk.chosen)
    elif not select_available(
        scheduler, t, shut(desk.ages, scheduler), rng, shut(fleet.available, scheduler),
        desk.scores, desk.chosen,
    ):  # fmt: skip
        _select_and_replace(scheduler, fleet, rng, t, slots)
    return assign_chosen(scheduler, matching, desk, rng, t)


@_assign_slots.register(Everybody)
def _assign_all(
    links: Any, scheduler: Any, matching: Any, fleet: Any, rng: Any, t: int, here: int, free: int
) -> bool:
    desk = fleet.desk
    for client in range(len(fleet.ages)):
        fleet.served[client] = client
        desk.ages[client] = fleet.ages[client]
        desk.priorities[client] = fleet.priorities[client]
    fleet.slots[0] = here
    select(scheduler, t, shut(desk.ages, scheduler), rng, desk.chosen)
    return assign_chosen(scheduler, matching, desk, rng, t)


@kernel
def _fill_slots(matching: Any, fleet: Any, t: int, rng: Any, slots: int, here: int) -> None:
    """Give clients that are present a slot each, the most urgent if there are too many."""
    if slots < here:
        ages, priorities = shut(fleet.ages, matching), shut(fleet.priorities, matching)
        serve(matching, t, ages, priorities, rng, fleet.served[:slots])
    else:
        slot = 0
        for client in range(len(fleet.ages)):
            if fleet.ages[client] > 0.0:
                fleet.served[slot] = client
                slot += 1
    for slot in range(slots):
        client = fleet.served[slot]
        fleet.desk.ages[slot] = fleet.ages[client]
        fleet.desk.priorities[slot] = fleet.priorities[client]


@cold
def _select(scheduler: Any, t: int, ages: Any, rng: Any, chosen: Any) -> None:
    """Do what `select` does; compiled once for all calls."""
    select(scheduler, t, shut(ages, scheduler), rng, chosen)


@kernel
def _used(desk: Any, slots: int) -> Any:
    """Return the desk without its empty slots."""
    return Desk(
        desk.ages[:slots],
        desk.priorities[:slots],
        desk.chosen[:slots],
        desk.scores,
        desk.assignment[:slots],
        desk.overridden[:slots],
        desk.outcome[:slots],
        desk.given,
    )


@cold
def _select_and_replace(scheduler: Any, fleet: Any, rng: Any, t: int, slots: int) -> None:
    """Let a scheduler choose as many channels as ever; drop and replace those that cannot be used.

    Of too many channels a random part is kept, so that the chance of each falls alike.
    """
    desk = fleet.desk
    for slot in range(slots, len(desk.ages)):
        desk.ages[slot] = 1.0
    _select(scheduler, t, desk.ages, rng, desk.chosen)
    if not _exist(desk, -t - (1 << 40)):  # another mark than that of `assign_chosen`
        return  # `assign_chosen` refuses it
    taken = fleet.rate  # not in use before the plan is made
    for channel in range(len(taken)):
        taken[channel] = 0.0
    kept = 0
    for j in range(len(desk.chosen)):
        channel = desk.chosen[j]
        if fleet.available[channel] == 1:
            desk.chosen[kept] = channel
            taken[channel] = 1.0
            kept += 1
    if kept >= slots:
        draw_to_front(desk.chosen[:kept], rng, 0, slots)
        return
    score(scheduler, t, desk.scores)
    while kept < slots:
        best = -1
        for channel in range(len(taken)):
            usable = fleet.available[channel] == 1 and taken[channel] == 0.0
            if usable and (best < 0 or desk.scores[0, channel] > desk.scores[0, best]):
                best = channel
        desk.chosen[kept] = best
        taken[best] = 1.0
        kept += 1


@_assign_slots.register(OwnLinks)
def _assign_links(
    links: Any, scheduler: Any, matching: Any, fleet: Any, rng: Any, t: int, here: int, free: int
) -> bool:
    for client in range(len(fleet.ages)):
        fleet.desk.ages[client] = fleet.ages[client]
        fleet.desk.priorities[client] = fleet.priorities[client]
    desk = fleet.desk
    select(scheduler, t, shut(desk.ages, scheduler), rng, desk.chosen)
    if not is_ours(scheduler) and not _exist(desk, -t):
        return False
    score(scheduler, t, desk.scores)
    kept = 0
    for j in range(len(desk.chosen)):
        if fleet.available[desk.chosen[j]] == 1:
            desk.chosen[kept] = desk.chosen[j]
            kept += 1
    match_links(
        matching, t, desk.chosen[:free], desk.scores, shut(desk.ages, matching),
        shut(desk.priorities, matching), links.most[0], rng, desk.assignment,
    )  # fmt: skip
    seen = shut(desk.ages, scheduler)
    override(scheduler, t, seen, desk.scores, desk.assignment, desk.overridden)
    return keeps_rules(scheduler, matching, desk, t)


@cold
def _drop_missing(fleet: Any) -> None:
    """Take back channels that are not there, which only an AoI-aware rule hands out."""
    for slot in range(len(fleet.desk.assignment)):
        channel = fleet.desk.assignment[slot]
        if channel >= 0 and fleet.available[channel] == 0:
            fleet.desk.assignment[slot] = -1


@kernel
def _enter(scheduler: Any, fleet: Any, t: int) -> None:
    """Note the transmissions of round t, in the order of slots, with their estimated chances."""
    sent = fleet.sent
    row = t % len(sent.rounds)
    _estimate(fleet.links, scheduler, fleet)
    entry = 0
    for slot in range(len(fleet.desk.assignment)):
        channel = fleet.desk.assignment[slot]
        if channel >= 0:
            client = fleet.served[slot]
            place = sent.entries[row, entry]
            place["client"] = client
            place["channel"] = channel
            place["outcome"] = UNKNOWN
            place["doubted"] = 0
            chance = _chance(fleet.links, scheduler, fleet, client, channel)
            place["chance"] = min(max(chance, _SURE), 1.0 - _SURE)
            entry += 1
    sent.rounds[row]["round"] = t
    sent.rounds[row]["size"] = entry
    sent.rounds[row]["unknown"] = entry


@verb
def _estimate(links: Any, scheduler: Any, fleet: Any) -> None:
    """Write the estimated success rates of all channels; 1/2 where a scheduler has none."""
    for channel in range(len(fleet.rate)):
        fleet.rate[channel] = 0.5
    means(scheduler, fleet.rate)


@verb
def _chance(links: Any, scheduler: Any, fleet: Any, client: int, channel: int) -> float:
    return fleet.rate[channel]  # type: ignore[no-any-return]  # a numpy number in plain Python


@_estimate.register(OwnLinks)
def _estimate_nothing(links: Any, scheduler: Any, fleet: Any) -> None:
    pass


@_chance.register(OwnLinks)
def _link_chance(links: Any, scheduler: Any, fleet: Any, client: int, channel: int) -> float:
    return link_mean(scheduler, client, channel)  # type: ignore[no-any-return]  # a verb
