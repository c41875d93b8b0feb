"""The fused loop: plan, transmit, observe and measure, compiled into one function per policy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from freshband._jit import entry_point, kernel, shut
from freshband._lending import lend
from freshband._rounds import observe_round, plan_round
from freshband.channels.adversary import react
from freshband.schedulers.base import reveal
from freshband.states import record

_REMEMBERED = 100_000  # number of first alarms that a tally remembers


class Tally(NamedTuple):
    """The measurements of a run, for M clients, P checkpoints and L logged rounds."""

    mark: NDArray[np.void]  # next checkpoint, alarms, oldest age seen, sum of all ages
    variance: NDArray[np.float64]  # (1,) sum over rounds of M V_t, which needs no division
    delivered: NDArray[np.int64]  # (M,) successes of each client
    checkpoint: NDArray[np.int64]  # (P,) rounds at which curves are sampled, increasing
    age_curve: NDArray[Any]  # (P,) sum of ages so far, weighted in a fleet
    variance_curve: NDArray[np.float64]  # (P,)
    delivered_curve: NDArray[np.int64]  # (P,) successes so far
    alarm: NDArray[np.int64]  # (room, 2) round and channel of each alarm
    assignment_log: NDArray[np.int64]  # (L, M) the first L rounds
    outcome_log: NDArray[np.int8]  # (L, M)


def open_tally(n_clients: int, checkpoints: NDArray[np.int64], logged: int = 0) -> Tally:
    """Return an empty tally; the last checkpoint must be the last round."""
    points = len(checkpoints)
    return Tally(
        mark=record(next=0, alarms=0, oldest=0, age=0),
        variance=np.zeros(1),
        delivered=np.zeros(n_clients, np.int64),
        checkpoint=checkpoints,
        age_curve=np.zeros(points, np.int64),
        variance_curve=np.zeros(points),
        delivered_curve=np.zeros(points, np.int64),
        alarm=np.zeros((min(_REMEMBERED, int(checkpoints[-1])), 2), np.int64),
        assignment_log=np.zeros((logged, n_clients), np.int64),
        outcome_log=np.zeros((logged, n_clients), np.int8),
    )


@kernel
def sample(tally: Any, t: int, alarm: int) -> None:
    """Note an alarm, and sample the curves if round t is a checkpoint."""
    if alarm >= 0:
        raised = tally.mark[0]["alarms"]
        if raised < len(tally.alarm):
            tally.alarm[raised, 0] = t
            tally.alarm[raised, 1] = alarm
        tally.mark[0]["alarms"] = raised + 1
    point = tally.mark[0]["next"]
    if t == tally.checkpoint[point]:
        tally.age_curve[point] = tally.mark[0]["age"]
        tally.variance_curve[point] = tally.variance[0]
        for j in range(len(tally.delivered)):
            tally.delivered_curve[point] += tally.delivered[j]
        tally.mark[0]["next"] = min(point + 1, len(tally.checkpoint) - 1)


@kernel
def _measure(tally: Any, desk: Any, t: int, alarm: int) -> None:
    n_clients = len(desk.ages)
    total = 0
    squares = 0
    oldest = tally.mark[0]["oldest"]
    for j in range(n_clients):
        age = desk.ages[j]
        total += age
        squares += age * age
        oldest = max(oldest, age)
        tally.delivered[j] += desk.outcome[j] == 1
    tally.mark[0]["oldest"] = oldest
    tally.mark[0]["age"] += total
    tally.variance[0] += n_clients * squares - total * total
    sample(tally, t, alarm)
    if t <= len(tally.assignment_log):
        for j in range(n_clients):
            tally.assignment_log[t - 1, j] = desk.assignment[j]
            tally.outcome_log[t - 1, j] = desk.outcome[j]


@entry_point
def run_block(
    scheduler: Any,
    matching: Any,
    desk: Any,
    tally: Any,
    jammer: Any,
    rng: Any,
    states: Any,
    means: Any,
    t: int,
) -> tuple[int, int]:
    """Play rounds t+1 … t+n over the ``states`` and ``means``, shape (n, N), of one block.

    Returns 0 and -1, or the round in which the policy broke a rule and the alarm of that round.
    """
    scheduler, matching, desk, tally = lend(scheduler), lend(matching), lend(desk), lend(tally)
    jammer, rng, states, means = lend(jammer), lend(rng), lend(states), lend(means)
    for i in range(len(states)):
        t += 1
        react(jammer, t, desk.assignment, states[i], means[i])  # mostly nothing
        reveal(scheduler, shut(means[i], scheduler), shut(states[i], scheduler))  # for oracles
        if not plan_round(scheduler, matching, desk, rng, t):
            return t, -1
        for j in range(len(desk.assignment)):
            channel = desk.assignment[j]
            desk.outcome[j] = states[i, channel] if channel >= 0 else -1
        alarm = observe_round(scheduler, desk, t)
        if alarm < -1 or alarm >= states.shape[1]:
            return t, alarm
        _measure(tally, desk, t, alarm)
    return 0, -1
