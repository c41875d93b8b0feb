"""One round for any fleet: more clients than channels, late outcomes, absent clients and channels.

Every round is reduced to the problem of the paper: of all clients that are present, the most urgent
ones get a *slot* each, and scheduler and matching see the slots alone. With a slot for every client
this is `freshband._rounds`, bit for bit.

The server keeps the *expected round of the last delivery*, L, of every client; the age at the end
of round t is `t - L + 1`. A delivery in round r sets `L = r`. While the outcome of a transmission
is unknown, `L <- p r + (1 - p) L` with the estimated chance p, which is the recursion
`E[a] <- p + (1 - p) (E[a] + 1)`, and costs nothing for clients that are idle. Transmissions of the
last rounds are kept, so that L is computed again when an outcome arrives.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from freshband._doubts import Doubts, close_doubts, judge_outcome, open_doubts
from freshband._jit import cold, is_ours, kernel
from freshband._rounds import Desk, _exist, _noticed, assign_chosen, open_desk
from freshband.matching.base import rank_clients, serve, serve_urgent
from freshband.schedulers.base import (
    link_mean,
    means,
    score,
    select,
    select_available,
    update,
    update_late,
)
from freshband.states import not_saved, record

Silence = Literal["random", "loss"]
ProofOfLife = Literal["outcome", "delivery", "none"]

UNKNOWN, LOST, DELIVERED, MUTE = -1, 0, 1, 2  # MUTE: lost, which says nothing about the channel


class Sent(NamedTuple):
    """Transmissions of the last D rounds, at most S in each; round r is in row r mod D."""

    round: NDArray[np.int64]  # (D,) 0 for none
    size: NDArray[np.int64]  # (D,) number of transmissions
    unknown: NDArray[np.int64]  # (D,) number of those whose outcome is unknown
    client: NDArray[np.int64]  # (D, S)
    channel: NDArray[np.int64]  # (D, S)
    outcome: NDArray[np.int8]  # (D, S)
    chance: NDArray[np.float64]  # (D, S) estimated success rate
    before: NDArray[np.float64]  # (D, S) L of the client before the round


class Fleet(NamedTuple):
    """What the server knows of M clients and N channels; Q slots are filled anew in each round."""

    desk: Desk  # of the slots; ages are real numbers
    served: NDArray[np.int64]  # (Q,) the client in each slot
    weight: NDArray[np.float64]  # (M,) importance of a client's age
    priorities: NDArray[np.float64]  # (M,) contributions from training; zeros without
    present: NDArray[np.int8]  # (M,) 1 for clients that may send in this round
    available: NDArray[np.int8]  # (N,) 1 for channels that exist in this round
    since: NDArray[np.float64]  # (M,) L
    ages: NDArray[np.float64]  # (M,) effective ages in this round, 0 for absent clients
    rate: NDArray[np.float64]  # (N,) estimated success rates of channels
    sent: Sent
    doubts: Doubts
    size: NDArray[np.void]  # slots in use, most transmissions, whether slots are clients, options


not_saved(Fleet, "ages", "rate")  # written in every round before they are read


def open_fleet(
    n_clients: int,
    n_channels: int,
    *,
    most: int,
    links: bool = False,
    weights: NDArray[np.float64] | None = None,
    max_delay: int = 0,
    silence: Silence = "random",
    proof_of_life: ProofOfLife = "outcome",
) -> Fleet:
    """Return the fleet before the first round: all ages are 1.

    ``most`` is the largest number of transmissions per round, S. With ``links`` the scheduler
    scores every link, and each client has its own slot.
    """
    slots, depth = (n_clients if links else most), max_delay + 1
    desk = open_desk(slots, n_channels, links)
    return Fleet(
        desk=desk._replace(
            ages=np.ones(slots),
            chosen=np.zeros(n_channels if links else most, np.int64),
        ),
        served=np.arange(slots),
        weight=np.ones(n_clients) if weights is None else weights,
        priorities=np.zeros(n_clients),
        present=np.ones(n_clients, np.int8),
        available=np.ones(n_channels, np.int8),
        since=np.zeros(n_clients),
        ages=np.zeros(n_clients),
        rate=np.full(n_channels, 0.5),
        sent=Sent(
            round=np.zeros(depth, np.int64),
            size=np.zeros(depth, np.int64),
            unknown=np.zeros(depth, np.int64),
            client=np.zeros((depth, most), np.int64),
            channel=np.zeros((depth, most), np.int64),
            outcome=np.zeros((depth, most), np.int8),
            chance=np.zeros((depth, most)),
            before=np.zeros((depth, most)),
        ),
        doubts=open_doubts(n_clients, depth, proof_of_life),
        size=record(slots=slots, most=most, links=links, loss=silence == "loss"),
    )


# ------------------------------------------------------------------------------------- planning


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
        for place in range(slots):
            other = place + int(rng.random() * (kept - place))
            desk.chosen[place], desk.chosen[other] = desk.chosen[other], desk.chosen[place]
        return
    score(scheduler, t, desk.scores)
    while kept < slots:
        best = -1
        for channel in range(len(taken)):
            if fleet.available[channel] == 1 and not taken[channel]:
                if best < 0 or desk.scores[0, channel] > desk.scores[0, best]:
                    best = channel
        desk.chosen[kept] = best
        taken[best] = True
        kept += 1


@cold
def _assign_links(
    scheduler: Any, matching: Any, fleet: Any, rng: Any, t: int, most: int
) -> bool:
    """Choose links for the largest sum of urgency times score, at most ``most`` of them."""
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
    rank_clients(matching, t, desk.ages, desk.priorities)
    ranked = matching.clients.copy()
    here = 0
    for rank in range(len(ranked)):
        if fleet.present[ranked[rank]] == 1:
            ranked[here] = ranked[rank]
            here += 1
    serve_urgent(
        matching, ranked[:here], desk.chosen[:free], desk.scores, desk.ages, most, desk.assignment
    )
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


# ------------------------------------------------------------------------------------- learning


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


@kernel
def expire(scheduler: Any, fleet: Any, t: int) -> int:
    """Give up the oldest round to make room for round t: its open outcomes stay unknown, or are losses.

    Returns the channel that changed, or -1.
    """
    sent = fleet.sent
    row = t % len(sent.round)
    alarm = -1
    if fleet.size[0]["loss"] == 1 and sent.round[row] > 0 and sent.unknown[row] > 0:
        for entry in range(sent.size[row]):
            if sent.outcome[row, entry] == UNKNOWN:
                alarm = max(alarm, hear_late(scheduler, fleet, t - 1, row, entry, LOST))
    return alarm
