"""One round of the server: plan, then observe.

These two kernels are the round wherever it runs: the coordinator calls them one at a time, the
simulator inside its fused loop.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from freshband._jit import cold, is_ours, kernel, shut
from freshband._policy import Policy
from freshband.errors import ParameterError, RuleError, shown
from freshband.matching.base import match
from freshband.schedulers.base import override, score, select, update
from freshband.states import FLAGS, between, declare, not_saved

MOST_WORTH = 1e300  # of a contribution


class Desk(NamedTuple):
    """The arrays of one round on the server, for M clients and N channels."""

    ages: NDArray[Any]  # (M,) a_i(t), equation (8): int64, or float64 in a fleet
    priorities: NDArray[np.float64]  # (M,) from training; zeros without
    chosen: NDArray[np.int64]  # (M,) channels selected
    scores: NDArray[np.float64]  # (1, N) ranking key of all clients, or (M, N) of each
    assignment: NDArray[np.int64]  # (M,) channel of each client, -1 for none
    overridden: NDArray[np.int8]  # (M,) 1 where an AoI-aware rule acted
    outcome: NDArray[np.int8]  # (M,) 1 delivered, 0 lost, -1 unknown
    given: NDArray[np.int64]  # (N,) the round in which a channel was handed out, or minus: chosen


not_saved(Desk, "given")  # only compared with the present round
declare(
    Desk,
    chosen=between(0, "given"),
    assignment=between(-1, "given"),
    overridden=FLAGS,
    outcome=between(-1, 1),
)


def open_desk(n_clients: int, n_channels: int, client_scores: bool = False) -> Desk:
    """Return the desk before the first round: all ages are 1."""
    return Desk(
        ages=np.ones(n_clients, np.int64),
        priorities=np.zeros(n_clients),
        chosen=np.zeros(n_clients, np.int64),
        scores=np.zeros((n_clients if client_scores else 1, n_channels)),
        assignment=np.full(n_clients, -1, np.int64),
        overridden=np.zeros(n_clients, np.int8),
        outcome=np.full(n_clients, -1, np.int8),
        given=np.zeros(n_channels, np.int64),
    )


@kernel
def plan_round(scheduler: Any, matching: Any, desk: Any, rng: Any, t: int) -> bool:
    """Select channels, rank them, match, override: fills ``desk.assignment`` for round t.

    Returns whether the plan keeps the rules; `broken_rule` names the one it breaks. A plan that
    breaks a rule must not be used, because other kernels do not check channel numbers.
    """
    for j in range(len(desk.overridden)):
        desk.overridden[j] = 0
        if not is_ours(matching):  # matchings of the package write all entries
            desk.assignment[j] = -1
    select(scheduler, t, shut(desk.ages, scheduler), rng, desk.chosen)
    return assign_chosen(scheduler, matching, desk, rng, t)


@kernel
def assign_chosen(scheduler: Any, matching: Any, desk: Any, rng: Any, t: int) -> bool:
    """Rank the chosen channels, match, override; return whether the plan keeps the rules."""
    if not is_ours(scheduler) and not _exist(desk, -t):  # match would leave the arrays
        return False
    score(scheduler, t, desk.scores)
    ages, priorities = shut(desk.ages, matching), shut(desk.priorities, matching)
    match(matching, t, desk.chosen, desk.scores, ages, priorities, rng, desk.assignment)
    seen = shut(desk.ages, scheduler)
    override(scheduler, t, seen, desk.scores, desk.assignment, desk.overridden)
    return keeps_rules(scheduler, matching, desk, t)


@kernel
def keeps_rules(scheduler: Any, matching: Any, desk: Any, t: int) -> bool:
    """Whether the assignment keeps the rules; that of the package's own states always does."""
    if is_ours(scheduler) and is_ours(matching):
        return True
    return _is_assignment(desk, t)


@cold
def _exist(desk: Any, mark: int) -> bool:
    """Whether all chosen channels exist and differ; ``mark`` < 0, once used, stands for those."""
    for j in range(len(desk.chosen)):
        channel = desk.chosen[j]
        if channel < 0 or channel >= desk.scores.shape[1] or desk.given[channel] == mark:
            return False
        desk.given[channel] = mark
    return True


@cold
def _is_assignment(desk: Any, t: int) -> bool:
    """Whether each client has a channel of its own, or none."""
    for j in range(len(desk.assignment)):
        channel = desk.assignment[j]
        if channel != -1:
            if channel < 0 or channel >= desk.scores.shape[1] or desk.given[channel] == t:
                return False
            desk.given[channel] = t
    return True


@kernel
def _noticed(alarm: int | None) -> int:
    """Treat an ``update`` that returns nothing as one that detected no change."""
    return -1 if alarm is None else int(alarm)


@kernel
def observe_round(scheduler: Any, desk: Any, t: int) -> int:
    """Update the ages from ``desk.outcome`` and learn; return the channel that changed, or -1.

    The outcome of a client without a channel must be -1, unknown: it sent nothing.
    """
    for j in range(len(desk.ages)):
        desk.ages[j] = 1 if desk.outcome[j] == 1 else desk.ages[j] + 1
    return learn(scheduler, desk, t)


@kernel
def learn(scheduler: Any, desk: Any, t: int) -> int:
    """Let a scheduler learn from the round on the desk; return the channel that changed, or -1."""
    assignment, outcome = shut(desk.assignment, scheduler), shut(desk.outcome, scheduler)
    return _noticed(update(scheduler, t, assignment, outcome, shut(desk.overridden, scheduler)))


def broken_rule(policy: str, t: int, desk: Desk, alarm: int = -1) -> RuleError:
    """Return the error that says which rule a refused plan, or this alarm, breaks."""
    desk.given[:] = 0  # the round may be planned again
    n_clients, last = len(desk.chosen), desk.scores.shape[1] - 1
    chosen, assignment = desk.chosen.tolist(), desk.assignment.tolist()
    if not all(0 <= channel <= last for channel in chosen) or len(set(chosen)) < n_clients:
        rule = f"select must choose {n_clients} different channels from 0 to {last}"
        given = shown(chosen)
    elif not -1 <= alarm <= last:
        rule, given = f"update must return a channel from 0 to {last}, or -1", str(alarm)
    else:
        rule = f"each client must get a channel of its own from 0 to {last}, or -1"
        given = shown(assignment)
    return RuleError(f"policy {policy!r} broke a rule in round {t}: {rule}, got {given}")


def read_contributions(
    contributions: Any, n_clients: int, policy: Policy
) -> NDArray[np.float64] | None:
    """Return contributions in the form of ``Desk.priorities``, or raise `ParameterError`."""
    if contributions is None:
        if policy.needs_contributions:
            raise ParameterError(
                f"{policy.name!r} ranks clients by their contributions: call plan(contributions)"
            )
        return None
    if not policy.needs_contributions:
        raise ParameterError(
            f"contributions are for '+priority' only; {policy.name!r} does not use them"
        )
    try:
        given = np.asarray(contributions)
        worth = np.asarray(given, np.float64) if given.dtype.kind in "iuf" else np.zeros(0)
    except (TypeError, ValueError):
        worth = np.zeros(0)
    if worth.shape != (n_clients,) or not np.isfinite(worth).all() or (worth < 0).any():
        raise ParameterError(
            f"contributions must be {n_clients} finite numbers >= 0, one per client, "
            f"got {shown(contributions)}"
        )
    if (worth > MOST_WORTH).any():
        raise ParameterError(
            f"contributions must be at most {MOST_WORTH:g}, got {shown(contributions)}"
        )
    return worth
