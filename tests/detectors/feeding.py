"""A compiled loop that feeds streams to a detector."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from freshband._jit import entry_point
from freshband._lending import lend
from freshband.detectors.base import forget, push
from freshband.states import reserve

COMPILED = not numba.config.DISABLE_JIT


class Alarms(NamedTuple):
    """What the detector said at every observation; positions count since the last reset."""

    alarm: NDArray[np.bool_]  # (n,)
    split: NDArray[np.int64]  # (n,) only where alarmed
    before: NDArray[np.int64]  # (n,) successes before the split, only where alarmed
    statistic: NDArray[np.float64]  # (n,) only where alarmed


@entry_point
def _feed(
    detector: Any,
    outcomes: Any,
    resets: Any,
    until_alarm: bool,
    alarm: Any,
    split: Any,
    before: Any,
    statistic: Any,
) -> None:
    detector, outcomes, resets = lend(detector), lend(outcomes), lend(resets)
    alarm, split, before, statistic = lend(alarm), lend(split), lend(before), lend(statistic)
    done = False
    for i in range(len(outcomes)):
        if resets[i]:
            forget(detector, 0)
            done = False
        if done:
            continue
        if push(detector, 0, outcomes[i]):
            book = detector.book[0]
            alarm[i] = True
            split[i] = book["split"]
            before[i] = book["before"]
            statistic[i] = book["statistic"]
            done = until_alarm


def feed(
    detector: Any,
    outcomes: NDArray[np.int8],
    resets: NDArray[np.bool_] | None = None,
    *,
    until_alarm: bool = False,
    plain: bool = False,
) -> Alarms:
    """Feed channel 0 and return what was said; ``until_alarm`` skips the rest of a stream then."""
    length = len(outcomes)
    resets = np.zeros(length, np.bool_) if resets is None else resets
    said = Alarms(
        np.zeros(length, np.bool_),
        np.zeros(length, np.int64),
        np.zeros(length, np.int64),
        np.zeros(length),
    )
    run = getattr(_feed, "py_func", _feed) if plain else _feed
    run(detector, outcomes, resets, until_alarm, *said)
    return said


def streams(
    detector: Any, matrix: NDArray[np.bool_], *, until_alarm: bool = True
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Feed every row as a stream of its own; return the first alarm's count and split, 0 if none.

    ``detector`` needs no room reserved.
    """
    rows, length = matrix.shape
    resets = np.zeros((rows, length), np.bool_)
    resets[:, 0] = True
    detector = reserve(detector, length)
    said = feed(detector, matrix.ravel().astype(np.int8), resets.ravel(), until_alarm=until_alarm)
    alarm = said.alarm.reshape(rows, length)
    first = alarm.argmax(axis=1)
    raised = alarm.any(axis=1)
    split = said.split.reshape(rows, length)[np.arange(rows), first]
    return np.where(raised, first + 1, 0), np.where(raised, split, 0)


def bernoulli(rng: np.random.Generator, rates: Any) -> NDArray[np.int8]:
    """Draw one outcome at each rate."""
    return (rng.random(len(rates)) < rates).astype(np.int8)
