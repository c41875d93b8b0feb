"""The loop for any fleet: what happens to the clients, and what the server learns of it when."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from freshband._jit import entry_point, kernel, shut, verb
from freshband._lending import lend
from freshband.channels.adversary import react
from freshband.fleet._learning import close_round, give_up, hear_late
from freshband.fleet._planning import plan_in_loop
from freshband.fleet._state import DELIVERED, LOST, UNKNOWN, OwnLinks
from freshband.fleet.conditions import SimulatedFleet
from freshband.schedulers.base import reveal
from freshband.simulation._loop import Tally, open_tally, sample
from freshband.states import record


class Truth(NamedTuple):
    """What the server does not know."""

    last: NDArray[np.int64]  # (M,) the round of the last delivery, or before the last return
    there: NDArray[np.uint8]  # (M,) 1 for clients that were there in the round before
    told: NDArray[np.int8]  # (D, S) the outcomes that the server will learn, UNKNOWN for never
    rule: NDArray[np.void]  # delay, whether silence is a loss, life needs a delivery, who tells
    exposure: NDArray[np.float64]  # (1,) sum of weights of those present, over all rounds


def open_truth(
    options: SimulatedFleet, n_clients: int, most: int, *, informed: bool = False
) -> Truth:
    """Return the truth before the first round; an ``informed`` policy is told all at once."""
    return Truth(
        last=np.zeros(n_clients, np.int64),
        there=np.ones(n_clients, np.uint8),
        told=np.zeros((options.max_delay + 1, most), np.int8),
        rule=record(
            delay=0 if informed else options.ack_delay,
            hears_all=informed,
            silence_is_loss=options.silence == "loss",
            losses_of_dead=options.proof_of_life == "delivery",
            tells=options.tells or informed,
        ),
        exposure=np.zeros(1),
    )


def open_fleet_tally(n_clients: int, checkpoints: NDArray[np.int64]) -> Tally:
    """Return an empty tally whose ages are weighted, and so real numbers."""
    plain = open_tally(n_clients, checkpoints)
    return plain._replace(
        mark=record(next=0, alarms=0, oldest=0, age=0.0), age_curve=np.zeros(len(checkpoints))
    )


@verb
def _show(links: Any, scheduler: Any, means: Any, states: Any) -> None:
    """Reveal a round, given as one row for all clients or a row for each."""
    reveal(scheduler, shut(means[0], scheduler), shut(states[0], scheduler))


@_show.register(OwnLinks)
def _show_links(links: Any, scheduler: Any, means: Any, states: Any) -> None:
    reveal(scheduler, shut(means, scheduler), shut(states, scheduler))


@kernel
def _return(truth: Any, t: int, present: Any) -> None:
    """Count the ages of clients that come back from their return."""
    for client in range(len(present)):
        if present[client] > truth.there[client]:
            truth.last[client] = t - 1
        truth.there[client] = present[client]


@kernel
def _tell(fleet: Any, truth: Any, t: int, present: Any, available: Any) -> None:
    """Let the server know who is there, if it is told."""
    if truth.rule[0]["tells"] == 1:
        for client in range(len(present)):
            fleet.present[client] = present[client]
            if present[client] == 1:
                fleet.doubts.alive[client] = 1.0
                fleet.doubts.heard[client] = t - 1
        for channel in range(len(available)):
            fleet.available[channel] = available[channel]


@kernel
def _transmit(
    fleet: Any, truth: Any, tally: Any, t: int, states: Any, present: Any, answered: Any
) -> None:
    """Let updates through, and note which outcomes the server will learn."""
    sent, rule = fleet.sent, truth.rule[0]
    row = t % len(sent.rounds)
    for entry in range(sent.rounds[row]["size"]):
        place = sent.entries[row, entry]
        client = place["client"]
        good = states[client if len(states) > 1 else 0, place["channel"]] == 1
        told = UNKNOWN
        if present[client] == 1:
            if good:
                truth.last[client] = t
                tally.delivered[client] += 1
            if answered[client] == 1 or rule["hears_all"] == 1:
                told = DELIVERED if good else LOST
        elif rule["losses_of_dead"] == 1:
            told = LOST
        truth.told[row, entry] = told
        if rule["delay"] == 0:
            place["outcome"] = told


@kernel
def _hear_delayed(scheduler: Any, fleet: Any, truth: Any, t: int) -> int:
    """Let the server learn the outcomes whose delay is over; return a changed channel, or -1."""
    when = t - truth.rule[0]["delay"]
    alarm = -1
    if when < t and when > 0:
        row = when % len(fleet.sent.rounds)
        for entry in range(fleet.sent.rounds[row]["size"]):
            told = truth.told[row, entry]
            if told != UNKNOWN:
                alarm = max(alarm, hear_late(scheduler, fleet, t, row, entry, told))
    return alarm


@kernel
def _measure(tally: Any, fleet: Any, truth: Any, t: int, present: Any, alarm: int) -> None:
    """Measure the true ages of the clients that are present."""
    n_clients, here = len(present), 0
    total, squares, weighted, exposure = 0.0, 0.0, 0.0, 0.0
    oldest = tally.mark[0]["oldest"]
    for client in range(n_clients):
        if present[client] == 1:
            age = t - truth.last[client] + 1
            here += 1
            total += age
            squares += float(age) * age
            weighted += fleet.weight[client] * age
            exposure += fleet.weight[client]
            oldest = max(oldest, age)
    tally.mark[0]["oldest"] = oldest
    tally.mark[0]["age"] += weighted
    truth.exposure[0] += exposure
    if here > 0:
        tally.variance[0] += (n_clients / here) ** 2 * (here * squares - total * total)
    sample(tally, t, alarm)


@entry_point
def run_fleet_block(
    scheduler: Any,
    matching: Any,
    fleet: Any,
    truth: Any,
    tally: Any,
    jammer: Any,
    rng: Any,
    air: Any,
    conditions: Any,
    t: int,
) -> tuple[int, int]:
    """Play rounds t+1 … t+n over a block of air, shape (n, 1 or M, N), and its conditions.

    Returns 0 and -1, or the round in which the policy broke a rule and the alarm of that round.
    """
    scheduler, matching, fleet, truth = lend(scheduler), lend(matching), lend(fleet), lend(truth)
    tally, jammer, rng = lend(tally), lend(jammer), lend(rng)
    air, conditions = lend(air), lend(conditions)
    for i in range(len(air.states)):
        t += 1
        states, means, present = air.states[i], air.means[i], conditions.present[i]
        react(jammer, t, fleet.desk.assignment, states[0], means[0])
        _show(fleet.links, scheduler, means, states)
        _return(truth, t, present)
        _tell(fleet, truth, t, present, conditions.available[i])
        if truth.rule[0]["silence_is_loss"] == 1:
            give_up(scheduler, fleet, t)
        if not plan_in_loop(scheduler, matching, fleet, rng, t):
            return t, -1
        _transmit(fleet, truth, tally, t, states, present, conditions.answered[i])
        alarm = close_round(scheduler, fleet, t)
        late = _hear_delayed(scheduler, fleet, truth, t)
        alarm = max(alarm, late)
        if alarm < -1 or alarm >= len(fleet.available):
            return t, alarm
        _measure(tally, fleet, truth, t, present, alarm)
    return 0, -1
