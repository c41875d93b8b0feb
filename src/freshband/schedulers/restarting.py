"""Restarts: any index policy that restarts when a detector finds a change.

Between changes it plays the M largest indices, and regularly sweeps through all channels, so that a
change on any channel is noticed. An alarm of the detector restarts the learning.

Examples
--------
>>> import numpy as np
>>> from freshband.detectors.glr import Glr
>>> from freshband.schedulers.thompson import Thompson
>>> index = Thompson().start(2, 5, np.random.default_rng(0), None)
>>> state = restart_on_change(index, Glr(delta=0.01).start(5), alpha=0.05, restart="localised")
>>> type(state.index).__name__, type(state.detector).__name__
('_ThompsonState', '_GlrState')
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from freshband._jit import kernel
from freshband.detectors.base import forget, forget_all, push, since_change
from freshband.errors import ParameterError, nearest
from freshband.parameters import Parameters
from freshband.ranking import draw_to_front, take_available, take_best
from freshband.schedulers.base import (
    means,
    registry,
    score,
    select,
    select_available,
    update,
    update_late,
)
from freshband.schedulers.counts import absorb, absorb_late, clear, clear_all, keep
from freshband.schedulers.index import evaluate, write_key
from freshband.states import FIXED, ORDER, between, declare, record

_RESTARTS = ("global", "local", "localised")
_GLOBAL, _LOCAL, _LOCALISED = range(3)
_NEVER = np.iinfo(np.int64).max // 2


class _RestartingState(NamedTuple):
    """An index state and a detector state under one clock."""

    index: Any  # state of an index policy
    detector: Any
    clock: NDArray[np.void]  # τ; start and period of the sweep, in t - τ; episode from 1
    alpha: NDArray[np.float64]  # (1,) rate, see `_next_period`
    schedule: NDArray[np.void]  # whether α grows with the episodes, and falls with t - τ
    option: NDArray[np.void]  # what an alarm resets, and whether sweeps fill up at random
    deck: NDArray[np.int64]  # (N,) for random fill


declare(
    _RestartingState,
    clock={
        "tau": between(0, "round"),
        "sweep": between(0, "round"),
        "period": between(0, _NEVER),
        "episode": between(1, "round"),
    },
    alpha=FIXED,
    schedule=FIXED,
    option=FIXED,
    deck=ORDER,
)


def restart_on_change(
    index: Any,
    detector: Any,
    *,
    alpha: float,
    grows: bool = False,
    falls: bool = False,
    restart: Literal["global", "local", "localised"] = "global",
    random_fill: bool = False,
) -> _RestartingState:
    """Allocate the state of an index policy that restarts when a detector raises an alarm.

    All channels are swept every `⌊N/alpha⌋` rounds. ``grows``: alpha grows with the root of the
    number of episodes; ``falls``: it falls as `sqrt(ln x / x)`, x rounds after the last restart.
    ``restart`` and ``random_fill`` are options of `glr-cucb`.
    """
    if not evaluate.knows(type(index)) or not hasattr(index, "key"):
        raise ParameterError(
            "index must be the state of an index policy, such as that of cucb, kl-ucb or "
            f"thompson, got {type(index).__name__}"
        )
    return _RestartingState(
        index=index,
        detector=detector,
        clock=record(tau=0, sweep=0, period=0, episode=1),
        alpha=np.array([alpha]),
        schedule=record(grows=grows, falls=falls),
        option=record(restart=_RESTARTS.index(restart), random_fill=random_fill),
        deck=np.arange(len(index.values)),
    )


class Restarting(Parameters):
    """Hyper-parameters of every policy made of an index, a detector and restarts."""

    index: str = "ucb"
    index_c: float = Field(default=1.5, gt=0)
    channel_key: Literal["mean", "index"] = "mean"

    @field_validator("index")
    @classmethod
    def _check_index(cls, index: str) -> str:
        kinds = {name: registry[name] for name in registry}
        known = ["ucb"] + [
            name
            for name, kind in kinds.items()
            if "channel_key" in kind.model_fields and not issubclass(kind, Restarting)
        ]
        if index not in known:
            raise ValueError(
                f"index must be the name of an index policy, got {index!r}; "
                + nearest(index, known)
            )
        return index

    @abstractmethod
    def restarts(self, n_channels: int, horizon: int | None) -> dict[str, Any]:
        """Return the state of the detector, and the further arguments of `restart_on_change`."""

    def start(
        self, n_clients: int, n_channels: int, rng: np.random.Generator, horizon: int | None
    ) -> _RestartingState:
        """Allocate the state."""
        options: dict[str, Any] = {"channel_key": self.channel_key}
        if self.index == "ucb":
            options["index_c"] = self.index_c
        kind = registry["cucb" if self.index == "ucb" else self.index]
        index = _checked(kind, **options).start(n_clients, n_channels, rng, horizon)
        return restart_on_change(index, **self.restarts(n_channels, horizon))


@functools.cache
def _checked(kind: Any, **options: Any) -> Any:
    """Return the parameters of an index, which take longer to check than to start."""
    return kind(**options)


@kernel
def _next_period(scheduler: Any, elapsed: int) -> int:
    """Return the rounds from one sweep's start to the next, ⌊N/α⌋, never less than a sweep."""
    n_channels = len(scheduler.deck)
    alpha = scheduler.alpha[0]
    if scheduler.schedule[0]["grows"] == 1:
        alpha *= math.sqrt(scheduler.clock[0]["episode"])
    if scheduler.schedule[0]["falls"] == 1:
        alpha *= math.sqrt(math.log(elapsed + 1.0) / (elapsed + 1.0))
    if alpha * _NEVER <= n_channels:  # 0, or so small that N/α leaves int64
        return _NEVER
    return max(n_channels, int(n_channels / alpha))


@kernel
def _forced_channel(scheduler: Any, elapsed: int) -> int:
    """Return the channel that this round must use, or -1; every sweep visits all channels."""
    clock = scheduler.clock[0]
    position = elapsed - 1 - clock["sweep"]
    if position >= clock["period"]:
        clock["sweep"] = elapsed - 1
        position = 0
    if position == 0:
        clock["period"] = _next_period(scheduler, elapsed)
    return position if position < len(scheduler.deck) else -1


@select.register(_RestartingState)
def _select(scheduler: _RestartingState, t: int, ages: Any, rng: Any, chosen: Any) -> None:
    elapsed = t - scheduler.clock[0]["tau"]
    evaluate(scheduler.index, elapsed, rng)
    forced = _forced_channel(scheduler, elapsed)
    if forced >= 0 and scheduler.option[0]["random_fill"] == 1:
        _fill_at_random(scheduler.deck, rng, forced, chosen)
        return
    take_best(scheduler.index.values, t, chosen)
    if forced >= 0:
        _include(scheduler.index.values, forced, chosen)


@select_available.register(_RestartingState)
def _select_available(
    scheduler: _RestartingState,
    t: int,
    ages: Any,
    rng: Any,
    available: Any,
    scores: Any,
    chosen: Any,
) -> bool:
    elapsed = t - scheduler.clock[0]["tau"]
    evaluate(scheduler.index, elapsed, rng)
    forced = _forced_channel(scheduler, elapsed)
    take_available(scheduler.index.values, t, available, chosen)
    if forced >= 0 and available[forced] == 1:
        _include(scheduler.index.values, forced, chosen)
    return True


@kernel
def _include(values: Any, forced: int, chosen: Any) -> None:
    """Let a forced channel replace the chosen one of the lowest index."""
    worst = 0
    for j in range(len(chosen)):
        if chosen[j] == forced:
            return
        if values[chosen[j]] <= values[chosen[worst]]:
            worst = j
    chosen[worst] = forced


@kernel
def _fill_at_random(deck: Any, rng: Any, forced: int, chosen: Any) -> None:
    for position in range(len(deck)):
        if deck[position] == forced:
            deck[0], deck[position] = deck[position], deck[0]
            break
    draw_to_front(deck, rng, 1, len(chosen))
    for j in range(len(chosen)):
        chosen[j] = deck[j]


@score.register(_RestartingState)
def _score(scheduler: _RestartingState, t: int, scores: Any) -> None:
    write_key(scheduler.index, scores)


@means.register(_RestartingState)
def _means(scheduler: _RestartingState, out: Any) -> None:
    for channel in range(len(out)):
        out[channel] = scheduler.index.counts.mean[channel]


@update.register(_RestartingState)
def _update(
    scheduler: _RestartingState, t: int, assignment: Any, outcome: Any, overridden: Any
) -> int:
    absorb(scheduler.index.counts, t, assignment, outcome)
    for j in range(len(assignment)):
        channel: int = assignment[j]
        if channel >= 0 and outcome[j] >= 0 and push(scheduler.detector, channel, outcome[j]):
            _restart(scheduler, t, channel)
            return channel  # one restart per round (erratum E15f)
    return -1


@update_late.register(_RestartingState)
def _update_late(
    scheduler: _RestartingState, t: int, when: int, client: int, channel: int, outcome: int
) -> int:
    if when <= scheduler.clock[0]["tau"]:
        return -1  # from before the restart
    absorb_late(scheduler.index.counts, t, when, channel, outcome)
    if not push(scheduler.detector, channel, outcome):
        return -1
    _restart(scheduler, t, channel)
    return channel


@kernel
def _restart(scheduler: Any, t: int, channel: int) -> None:
    counts = scheduler.index.counts
    detector = scheduler.detector
    restart = scheduler.option[0]["restart"]
    if restart == _LOCAL:  # local: only the channel that changed; the clock continues
        clear(counts, channel)
        forget(detector, channel)
        return
    fresh, won = since_change(detector, channel)
    clear_all(counts)
    forget_all(detector)
    if restart == _LOCALISED:  # localised: the channel's outcomes since its change still count
        keep(counts, channel, fresh, won)
    clock = scheduler.clock[0]
    clock["tau"] = t
    clock["sweep"] = 0
    clock["period"] = 0
    clock["episode"] += 1
