"""GLR-CUCB (Algorithm 2): an index policy that starts over when a channel changes.

Between changes it plays the M largest indices; now and then it sweeps through all channels, so
that a change anywhere is noticed; each acknowledgement goes through an exact likelihood-ratio test,
and an alarm restarts the learning.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from freshband._jit import kernel
from freshband.detectors import glr
from freshband.detectors.base import forget, forget_all, push
from freshband.parameters import Parameters
from freshband.ranking import take_best
from freshband.schedulers import cucb, kl_ucb, thompson
from freshband.schedulers.base import (
    Matchings,
    Presets,
    means,
    needed_horizon,
    register,
    score,
    select,
    update,
)
from freshband.schedulers.counts import absorb, clear, clear_all, keep
from freshband.schedulers.index import evaluate, write_key

__all__ = ["GlrCucb", "GlrCucbState"]

_RESTARTS = ("global", "local", "localised")
_FILLS = ("index", "random")
_TAU, _SWEEP, _PERIOD, _EPISODE = range(4)  # positions in GlrCucbState.clock
_RESTART, _FILL = range(2)  # positions in GlrCucbState.option
_NEVER = np.iinfo(np.int64).max // 2


class GlrCucbState(NamedTuple):
    """An index state and a detector state under one clock."""

    index: Any  # state of cucb, kl-ucb or thompson
    detector: glr.GlrState
    clock: NDArray[np.int64]  # (4,) τ; start and period of the sweep, in t - τ; episode from 1
    alpha: NDArray[np.float64]  # (1,) rate, see `_next_period`
    schedule: NDArray[np.int64]  # (2,) whether α grows with the episodes, falls with t - τ
    option: NDArray[np.int64]  # (2,) restart and fill
    deck: NDArray[np.int64]  # (N,) for random fill


@kernel
def _next_period(scheduler: Any, elapsed: int) -> int:
    """Return the rounds from one sweep's start to the next, ⌊N/α⌋, never less than a sweep."""
    n_channels = len(scheduler.deck)
    alpha = scheduler.alpha[0]
    if scheduler.schedule[0] == 1:
        alpha *= math.sqrt(scheduler.clock[_EPISODE])
    if scheduler.schedule[1] == 1:
        alpha *= math.sqrt(math.log(elapsed + 1.0) / (elapsed + 1.0))
    if alpha * _NEVER <= n_channels:  # 0, or so small that N/α leaves int64
        return _NEVER
    return max(n_channels, int(n_channels / alpha))


@kernel
def _forced_channel(scheduler: Any, elapsed: int) -> int:
    """Return the channel this round must try, or -1; every sweep visits all, the last one too."""
    clock = scheduler.clock
    position = elapsed - 1 - clock[_SWEEP]
    if position >= clock[_PERIOD]:
        clock[_SWEEP] = elapsed - 1
        position = 0
    if position == 0:
        clock[_PERIOD] = _next_period(scheduler, elapsed)
    return position if position < len(scheduler.deck) else -1


@select.register(GlrCucbState)
def _select(scheduler: GlrCucbState, t: int, ages: Any, rng: Any, chosen: Any) -> None:
    elapsed = t - scheduler.clock[_TAU]
    evaluate(scheduler.index, elapsed, rng)
    forced = _forced_channel(scheduler, elapsed)
    if forced >= 0 and scheduler.option[_FILL] == 1:
        _fill_at_random(scheduler.deck, rng, forced, chosen)
        return
    take_best(scheduler.index.values, t, chosen)
    if forced >= 0:
        _include(scheduler.index.values, forced, chosen)


@kernel
def _include(values: Any, forced: int, chosen: Any) -> None:
    """Make room for a forced channel: the chosen one of the lowest index gives way."""
    worst = 0
    for j in range(len(chosen)):
        if chosen[j] == forced:
            return
        if values[chosen[j]] <= values[chosen[worst]]:
            worst = j
    chosen[worst] = forced


@kernel
def _fill_at_random(deck: Any, rng: Any, forced: int, chosen: Any) -> None:
    n = len(deck)
    for position in range(n):
        if deck[position] == forced:
            deck[0], deck[position] = deck[position], deck[0]
            break
    chosen[0] = forced
    for j in range(1, len(chosen)):
        other = j + int(rng.random() * (n - j))
        deck[j], deck[other] = deck[other], deck[j]
        chosen[j] = deck[j]


@score.register(GlrCucbState)
def _score(scheduler: GlrCucbState, t: int, scores: Any) -> None:
    write_key(scheduler.index, scores)


@means.register(GlrCucbState)
def _means(scheduler: GlrCucbState, out: Any) -> None:
    for channel in range(len(out)):
        out[channel] = scheduler.index.counts.mean[channel]


@update.register(GlrCucbState)
def _update(scheduler: GlrCucbState, t: int, assignment: Any, outcome: Any, overridden: Any) -> int:
    absorb(scheduler.index.counts, t, assignment, outcome)
    for j in range(len(assignment)):
        channel = assignment[j]
        if channel >= 0 and outcome[j] >= 0 and push(scheduler.detector, channel, outcome[j]):
            _restart(scheduler, t, channel)
            return channel  # type: ignore[no-any-return]  # one restart a round (erratum E15f)
    return -1


@kernel
def _restart(scheduler: Any, t: int, channel: int) -> None:
    counts = scheduler.index.counts
    detector = scheduler.detector
    restart = scheduler.option[_RESTART]
    if restart == 1:  # local: only the channel that changed; the clock runs on
        clear(counts, channel)
        forget(detector, channel)
        return
    book = detector.book[channel]
    fresh = float(book["count"] - book["split"])
    won = float(book["ones"] - book["before"])
    clear_all(counts)
    forget_all(detector)
    if restart == 2:  # localised: what the channel showed since its change is still true
        keep(counts, channel, fresh, won)
    scheduler.clock[_TAU] = t
    scheduler.clock[_SWEEP] = 0
    scheduler.clock[_PERIOD] = 0
    scheduler.clock[_EPISODE] += 1


@register("glr-cucb")
@final
class GlrCucb(Parameters):
    """UCB with an exact change detector and restarts, Algorithm 2 (GLR-CUCB).

    Plays the M largest of `mean_k + sqrt(c ln(t-τ) / D_k)` (equation (30)), sweeps through all
    channels every `⌊N/α⌋` rounds, runs the Bernoulli GLR test on every acknowledgement and restarts
    (`τ <- t`) when it fires.

    Parameters
    ----------
    index : {"ucb", "kl-ucb", "thompson"}, default "ucb"
        The index played between changes.
    index_c : float > 0, default 1.5
        Width `c` of the UCB bonus; only with ``index="ucb"``.
    channel_key : {"mean", "index"}, default "mean"
        How the chosen channels are ranked for matching: historical mean (31) or UCB (30).
    delta : float in (0, 1), default 0.001
        False-alarm level δ of the detector.
    threshold : {"paper", "besson", "kaufmann", "lai"}, default "paper"
        The detector's threshold, see `freshband.detectors.glr.threshold`.
    alpha : float in [0, 1], "paper", "besson" or "anytime", default "anytime"
        Share α of forced exploration. ``paper`` is `0.05 sqrt(ln T / T)`, ``besson`` is
        `0.05 sqrt(N n_segments ln T / T)`; both need the horizon. ``anytime`` uses the time since
        the last restart in place of T. 0 means none after the sweep that follows each restart.
    alpha_schedule : {"constant", "sqrt_episode"}, default "constant"
        Whether α grows with the root of the number of restarts.
    n_segments : int >= 1, default 6
        Number of stationary segments assumed by ``alpha="besson"``.
    explore_fill : {"index", "random"}, default "index"
        Who fills the other M-1 places in a forced round: the best indices, or a random draw.
    restart : {"global", "local", "localised"}, default "global"
        What an alarm resets: all channels, the one that changed, or all but the means of what that
        one showed since its change (its detector starts afresh all the same).

    Notes
    -----
    The preset ``paper`` is the printed algorithm: ``alpha="paper"``, ``explore_fill="random"``,
    ``channel_key="index"``, rotation. The preset ``fresh`` is the strongest known: a narrower
    bonus, a detector that takes more false alarms for earlier ones, and after an alarm what the
    changed channel showed since is kept.

    **Deviations** (erratum E15). (1) `α >= 0` is read as α > 0; 0 switches forced exploration off.
    (2) `(t-τ) mod ⌊N/α⌋ in [N]` is read 1-based, so the last channel is reached too, also when
    `⌊N/α⌋ <= N`. (3) The mean divides by the new count. (4) A restart forgets means and histories,
    not only counts, and ends the round's tests: after it the printed loop would take the logarithm
    of zero. (5) A channel never heard has index +∞.

    Examples
    --------
    >>> import freshband
    >>> result = freshband.simulate(
    ...     "piecewise", ["random", "glr-cucb"], clients=2, rounds=4000, runs=3, progress=False
    ... )
    >>> mean = result.regret.mean("run")
    >>> bool(mean.sel(policy="glr-cucb") < 0.2 * mean.sel(policy="random"))
    True

    References
    ----------
    Zhou, Wang, Varshney, Lim, "A near-optimal change-detection based algorithm for
    piecewise-stationary combinatorial semi-bandits", AAAI 2020.
    """

    presets: ClassVar[Presets] = {
        "corrected": {},
        "paper": {"alpha": "paper", "explore_fill": "random", "channel_key": "index"},
        "fresh": {"index_c": 0.25, "restart": "localised", "delta": 0.05, "threshold": "lai"},
    }
    matchings: ClassVar[Matchings] = {"paper": "rotate"}

    index: Literal["ucb", "kl-ucb", "thompson"] = "ucb"
    index_c: float = Field(default=1.5, gt=0)
    channel_key: Literal["mean", "index"] = "mean"
    delta: float = Field(default=0.001, gt=0, lt=1)
    threshold: Literal["paper", "besson", "kaufmann", "lai"] = "paper"
    alpha: Annotated[float, Field(ge=0, le=1)] | Literal["paper", "besson", "anytime"] = "anytime"
    alpha_schedule: Literal["constant", "sqrt_episode"] = "constant"
    n_segments: int = Field(default=6, ge=1)
    explore_fill: Literal["index", "random"] = "index"
    restart: Literal["global", "local", "localised"] = "global"

    def start(
        self, n_clients: int, n_channels: int, rng: np.random.Generator, horizon: int | None
    ) -> GlrCucbState:
        """Allocate the state."""
        if self.index == "ucb":
            index: Any = cucb.start_index(
                n_clients, n_channels, index_c=self.index_c, channel_key=self.channel_key
            )
        else:
            kind = kl_ucb if self.index == "kl-ucb" else thompson
            index = kind.start_index(n_clients, n_channels, channel_key=self.channel_key)
        return GlrCucbState(
            index=index,
            detector=glr.Glr(delta=self.delta, threshold=self.threshold).start(n_channels),
            clock=np.array([0, 0, 0, 1], np.int64),
            alpha=np.array([self._rate(n_channels, horizon)]),
            schedule=np.array(
                [self.alpha_schedule == "sqrt_episode", self.alpha == "anytime"], np.int64
            ),
            option=np.array(
                [_RESTARTS.index(self.restart), _FILLS.index(self.explore_fill)], np.int64
            ),
            deck=np.arange(n_channels),
        )

    def _rate(self, n_channels: int, horizon: int | None) -> float:
        if not isinstance(self.alpha, str):
            return self.alpha
        if self.alpha == "anytime":
            return 0.05
        rounds = needed_horizon(horizon, f"glr-cucb with alpha={self.alpha!r}")
        scale = 1 if self.alpha == "paper" else n_channels * self.n_segments
        return 0.05 * math.sqrt(scale * math.log(rounds) / rounds)
