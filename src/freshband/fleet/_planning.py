"""Planning a round for any fleet: who may send, and where.

Every round is reduced to the problem of the paper: of all clients that are present, the most urgent
ones get a *slot* each, and scheduler and matching see the slots alone. With a slot for every client
this is `freshband._rounds`, bit for bit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from freshband._jit import cold, is_ours, kernel
from freshband._rounds import Desk, _exist, assign_chosen
from freshband.fleet._state import UNKNOWN
from freshband.matching.base import match_links, serve
from freshband.ranking import draw_to_front
from freshband.schedulers.base import link_mean, means, override, score, select, select_available


@kernel
def _effective_age(age: float, factor: float) -> float:
    """Return the x for which x (x + 1) is ``factor`` times age (age + 1)."""
    if factor == 1.0:
        return age
    return 0.5 * (math.sqrt(1.0 + 4.0 * factor * age * (age + 1.0)) - 1.0)


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


@kernel
def _fill_slots(matching: Any, fleet: Any, t: int, rng: Any, here: int, room: int) -> int:
    """Give clients that are present a slot each, the most urgent if there are too many."""
    slots = min(here, room)
    if fleet.size[0]["links"] == 1:  # a slot for each client, present or not
        slots = len(fleet.served)
    elif slots < here:
        serve(matching, t, fleet.ages, fleet.priorities, rng, fleet.served[:slots])
    else:
        slot = 0
        for i in range(len(fleet.ages)):
            if fleet.ages[i] > 0.0:
                fleet.served[slot] = i
                slot += 1
    desk = fleet.desk
    for slot in range(slots):
        client = fleet.served[slot]
        desk.ages[slot] = fleet.ages[client]
        desk.priorities[slot] = fleet.priorities[client]
    for slot in range(len(desk.assignment)):
        desk.assignment[slot] = -1
        desk.overridden[slot] = 0
    fleet.size[0]["slots"] = slots
    return slots


@kernel
def plan_fleet(scheduler: Any, matching: Any, fleet: Any, rng: Any, t: int) -> bool:
    """Fill slots and assign channels for round t; what is sent is entered in ``fleet.sent``.

    Returns whether the plan keeps the rules, as `plan_round` does.
    """
    n_channels = len(fleet.available)
    free = 0
    for channel in range(n_channels):
        free += fleet.available[channel]
    here = _write_ages(fleet, t)
    most = min(fleet.size[0]["most"], free)
    slots = _fill_slots(matching, fleet, t, rng, here, most)
    kept = True
    if fleet.size[0]["links"] == 1:
        kept = _assign_links(scheduler, matching, fleet, rng, t, most)
    elif slots > 0:
        desk = _used(fleet.desk, slots)
        if slots == len(fleet.desk.chosen) and free == n_channels:
            select(scheduler, t, desk.ages, rng, desk.chosen)
        elif not select_available(
            scheduler, t, desk.ages, rng, fleet.available, desk.scores, desk.chosen
        ):
            _select_and_replace(scheduler, fleet, rng, t, slots)
        kept = assign_chosen(scheduler, matching, desk, rng, t)
    if not kept:
        return False
    if free < n_channels:
        _drop_missing(fleet)
    _enter(scheduler, fleet, t)
    return True


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
    select(scheduler, t, desk.ages, rng, desk.chosen)
    if not _exist(desk):
        return  # `assign_chosen` refuses it
    taken = np.zeros(len(fleet.available), np.bool_)
    kept = 0
    for j in range(len(desk.chosen)):
        channel = desk.chosen[j]
        if fleet.available[channel] == 1:
            desk.chosen[kept] = channel
            taken[channel] = True
            kept += 1
    if kept >= slots:
        draw_to_front(desk.chosen[:kept], rng, 0, slots)
        return
    score(scheduler, t, desk.scores)
    while kept < slots:
        best = -1
        for channel in range(len(taken)):
            usable = fleet.available[channel] == 1 and not taken[channel]
            if usable and (best < 0 or desk.scores[0, channel] > desk.scores[0, best]):
                best = channel
        desk.chosen[kept] = best
        taken[best] = True
        kept += 1


@cold
def _assign_links(scheduler: Any, matching: Any, fleet: Any, rng: Any, t: int, most: int) -> bool:
    """Offer all available channels to all clients that are present; ``most`` of them may send."""
    desk = fleet.desk
    select(scheduler, t, desk.ages, rng, desk.chosen)
    if not is_ours(scheduler) and not _exist(desk):
        return False
    score(scheduler, t, desk.scores)
    free = 0
    for j in range(len(desk.chosen)):
        if fleet.available[desk.chosen[j]] == 1:
            desk.chosen[free] = desk.chosen[j]
            free += 1
    match_links(
        matching, t, desk.chosen[:free], desk.scores, desk.ages, desk.priorities, most, rng,
        desk.assignment,
    )  # fmt: skip
    override(scheduler, t, desk.ages, desk.scores, desk.assignment, desk.overridden)
    return True


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
    sent, links = fleet.sent, fleet.size[0]["links"] == 1
    row = t % len(sent.round)
    if not links:
        for channel in range(len(fleet.rate)):
            fleet.rate[channel] = 0.5  # where a scheduler has no means
        means(scheduler, fleet.rate)
    entry = 0
    for slot in range(len(fleet.desk.assignment)):
        channel = fleet.desk.assignment[slot]
        if channel >= 0:
            client = fleet.served[slot]
            sent.client[row, entry] = client
            sent.channel[row, entry] = channel
            sent.outcome[row, entry] = UNKNOWN
            if links:
                sent.chance[row, entry] = link_mean(scheduler, client, channel)
            else:
                sent.chance[row, entry] = fleet.rate[channel]
            entry += 1
    sent.round[row] = t
    sent.size[row] = entry
    sent.unknown[row] = entry
