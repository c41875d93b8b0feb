"""Change-point Thompson sampling: draw the beginning of the present segment, then the rates.

The posterior of Mellor and Shapiro weighs all beginnings of the present segment, the *run lengths*
of Bayesian online change-point detection. Beginnings without an outcome in between are the same to
it, so that one is entered only when an outcome arrives, for all rounds since the one before.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from freshband._jit import cold, kernel
from freshband.parameters import Parameters
from freshband.schedulers.base import means, ranks_by_means, register, update, update_late
from freshband.schedulers.index import evaluate, plays_largest
from freshband.states import FIXED, between, declare


@plays_largest
@ranks_by_means
class _SegmentsState(NamedTuple):
    """Weights of K beginnings for G groups of channels: one each, or one for all N."""

    weight: NDArray[np.float64]  # (G, K) probability of each beginning
    since: NDArray[np.int64]  # (G, K) the first round that counts
    last: NDArray[np.int64]  # (G,) the latest round with an outcome
    wins: NDArray[np.float64]  # (N, K)
    tries: NDArray[np.float64]  # (N, K)
    values: NDArray[np.float64]  # (N,) draws
    hazard: NDArray[np.float64]  # (1,)


declare(
    _SegmentsState,
    weight=between(0, 1.001),
    since=between(0, "round"),
    last=between(0, "round"),
    wins=between(0),
    tries=between(0),
    hazard=FIXED,
)


@kernel
def _stays(state: Any, group: int, t: int) -> float:
    """Return the probability that no change came after the latest outcome, until round t."""
    return math.pow(1.0 - state.hazard[0], float(max(t - state.last[group], 0)))


@kernel
def _draw_beginning(state: Any, group: int, t: int, rng: Any) -> int:
    """Draw the beginning of the present segment; -1 is one without outcomes."""
    weight = state.weight[group]
    left = rng.random()
    stays = _stays(state, group, t)
    if left >= stays:
        return -1
    left /= stays
    for k in range(len(weight) - 1):
        left -= weight[k]
        if left < 0.0:
            return k
    return len(weight) - 1


@evaluate.register(_SegmentsState)
def _evaluate(index: _SegmentsState, elapsed: int, rng: Any) -> None:
    k = -1
    for channel in range(len(index.values)):
        if channel < len(index.last):  # of this channel's group, which may be that of all
            k = _draw_beginning(index, channel, elapsed, rng)
        wins = index.wins[channel, k] if k >= 0 else 0.0
        tries = index.tries[channel, k] if k >= 0 else 0.0
        index.values[channel] = rng.beta(1.0 + wins, 1.0 + tries - wins)


@means.register(_SegmentsState)
def _means(scheduler: _SegmentsState, out: Any) -> None:
    for channel in range(len(out)):
        weight = scheduler.weight[channel if len(scheduler.last) > 1 else 0]
        out[channel] = 0.0
        for k in range(len(weight)):
            rate = (1.0 + scheduler.wins[channel, k]) / (2.0 + scheduler.tries[channel, k])
            out[channel] += weight[k] * rate


@kernel
def _begin(state: Any, group: int, when: int) -> None:
    """Let a beginning after the latest outcome take the place of the least likely one."""
    weight = state.weight[group]
    stays = _stays(state, group, when)
    least = 0
    for k in range(len(weight)):
        weight[k] *= stays
        if weight[k] < weight[least]:
            least = k
    weight[least] = 1.0 - stays
    state.since[group, least] = when
    state.last[group] = when
    if len(state.last) > 1:
        state.wins[group, least] = 0.0
        state.tries[group, least] = 0.0
    else:
        for channel in range(len(state.wins)):
            state.wins[channel, least] = 0.0
            state.tries[channel, least] = 0.0


@cold
def _learn(state: Any, when: int, channel: int, outcome: int) -> None:
    """Weigh the beginnings by how well they predict one outcome, and count it."""
    group = channel if len(state.last) > 1 else 0
    if when > state.last[group]:
        _begin(state, group, when)
    weight, since = state.weight[group], state.since[group]
    total = 0.0
    for k in range(len(weight)):
        chance = 0.5  # of an outcome from before the segment
        if since[k] <= when:
            wins, tries = state.wins[channel, k], state.tries[channel, k]
            seen = wins if outcome == 1 else tries - wins
            chance = (1.0 + seen) / (2.0 + tries)
            state.wins[channel, k] = wins + outcome
            state.tries[channel, k] = tries + 1.0
        weight[k] *= chance
        total += weight[k]
    for k in range(len(weight)):
        weight[k] /= total


@update.register(_SegmentsState)
def _update(
    scheduler: _SegmentsState, t: int, assignment: Any, outcome: Any, overridden: Any
) -> int:
    for j in range(len(assignment)):
        if assignment[j] >= 0 and outcome[j] >= 0:
            _learn(scheduler, t, assignment[j], outcome[j])
    return -1


@update_late.register(_SegmentsState)
def _update_late(
    scheduler: _SegmentsState, t: int, when: int, client: int, channel: int, outcome: int
) -> int:
    _learn(scheduler, when, channel, outcome)
    return -1


@register("bocpd-thompson")
@final
class BocpdThompson(Parameters):
    """Thompson sampling with Bayesian online change detection (CTS), for switching channels.

    Draws, for each channel, the beginning of its present segment from its posterior, then a rate
    from `Beta(1 + wins, 1 + losses)` since that beginning, and plays the M largest.

    Parameters
    ----------
    hazard : float in (0, 1), default 0.001
        The probability per round that a channel changes.
    changes : {"alone", "together"}, default "alone"
        Whether channels change one by one (the authors' per-arm model), or all at once (the global
        one).
    beginnings : int >= 2, default 32
        The most beginnings that are considered; the least likely one makes room for a new one.

    Notes
    -----
    Assumes that rates are drawn anew, uniformly, with a known probability per round. `bayes` began
    from this model, and learns hazard, structure and prior.

    **Deviations.** (1) M channels are played instead of one: those of the largest draws. (2) The
    authors resample beginnings at random when there are too many; here the least likely one is
    dropped. (3) The hazard is given; the authors also learn it. (4) An outcome that comes after one
    of a later round weighs beginnings after its own round by 1/2.

    Examples
    --------
    >>> import freshband
    >>> result = freshband.simulate(
    ...     "piecewise",
    ...     ["thompson", "bocpd-thompson"],
    ...     clients=2,
    ...     rounds=4000,
    ...     runs=3,
    ...     progress=False,
    ... )
    >>> forgets_not, forgets = result.regret.mean("run").values
    >>> bool(forgets < forgets_not)
    True

    References
    ----------
    Mellor and Shapiro, "Thompson sampling in switching environments with Bayesian online change
    detection", AISTATS 2013. Adams and MacKay, "Bayesian online changepoint detection", 2007.
    """

    hazard: float = Field(default=0.001, gt=0, lt=1)
    changes: Literal["alone", "together"] = "alone"
    beginnings: int = Field(default=32, ge=2)

    def start(
        self, n_clients: int, n_channels: int, rng: np.random.Generator, horizon: int | None
    ) -> _SegmentsState:
        """Allocate the state: one beginning, before the first round."""
        groups = n_channels if self.changes == "alone" else 1
        weight = np.zeros((groups, self.beginnings))
        weight[:, 0] = 1.0
        return _SegmentsState(
            weight=weight,
            since=np.zeros((groups, self.beginnings), np.int64),
            last=np.zeros(groups, np.int64),
            wins=np.zeros((n_channels, self.beginnings)),
            tries=np.zeros((n_channels, self.beginnings)),
            values=np.zeros(n_channels),
            hazard=np.array([self.hazard]),
        )
