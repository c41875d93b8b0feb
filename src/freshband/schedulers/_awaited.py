"""Outcomes that have not arrived: for `bayes`, which else would try a channel again and again.

A try is worth what its outcome will tell. The tries of a channel whose outcomes are still under way
will tell most of that already, so they count towards what is known before anything is known.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from freshband._jit import kernel
from freshband.states import between, declare, newer, record

_FIRST_DELAY = 10.0  # rounds that an outcome is late, before any was
_SPAN = 2.0  # delays in which hope for an outcome falls to 1/e


class Awaited(NamedTuple):
    """Tries that may still be answered, and how many were."""

    tries: NDArray[np.float64]  # (N,) those of a channel; old ones count less
    used: NDArray[np.int64]  # (N,) the last round in which a channel was used
    answers: NDArray[Any]  # a record: outcomes not in time, those that came late, their delays


newer(Awaited, "tries", "used", "answers")
_COUNT = between(1)
declare(
    Awaited,
    tries=between(0),
    used=between(0, "round"),
    answers={"unknown": _COUNT, "late": _COUNT, "delay": between(1e-3)},
)


def start_awaited(n_channels: int) -> Awaited:
    """Return channels that no outcome is awaited of; the first are expected to come."""
    return Awaited(
        tries=np.zeros(n_channels),
        used=np.zeros(n_channels, np.int64),
        answers=record(unknown=1.0, late=1.0, delay=_FIRST_DELAY),
    )


@kernel
def _hope(awaited: Any, delay: int) -> float:
    """Return how much a try still counts after so many rounds."""
    answers = awaited.answers[0]
    return math.exp(-delay * answers["late"] / (_SPAN * answers["delay"]))


@kernel
def fade(awaited: Any) -> None:
    """Let a round pass: what has not come for long will hardly come."""
    if awaited.answers[0]["unknown"] > 1.0:
        fading = _hope(awaited, 1)
        for channel in range(len(awaited.tries)):
            awaited.tries[channel] *= fading


@kernel
def wait(awaited: Any, channel: int) -> None:
    """Note a try whose outcome is not known."""
    awaited.tries[channel] += 1.0
    awaited.answers[0]["unknown"] += 1.0


@kernel
def arrive(awaited: Any, channel: int, delay: int) -> None:
    """Note that an outcome came after so many rounds."""
    awaited.tries[channel] = max(awaited.tries[channel] - _hope(awaited, delay), 0.0)
    awaited.answers[0]["late"] += 1.0
    awaited.answers[0]["delay"] += delay


@kernel
def narrowed(awaited: Any, channel: int, spread: float, noise: float) -> float:
    """Return the standard deviation expected once the awaited outcomes are known.

    ``spread`` is the one of now, ``noise`` the variance of one outcome.
    """
    if awaited.tries[channel] == 0.0:
        return spread
    answers = awaited.answers[0]
    due = awaited.tries[channel] * answers["late"] / answers["unknown"]
    return spread / math.sqrt(1.0 + due * spread * spread / noise)
