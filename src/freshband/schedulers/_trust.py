"""How far several forecasters are trusted: as far as each has predicted well, for `bayes`."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from freshband._jit import cold, kernel
from freshband.states import FIXED, declare, not_saved


class Trust(NamedTuple):
    """E forecasters."""

    now: NDArray[np.float64]  # (E,) sums to 1
    first: NDArray[np.float64]  # (E,) what it was at first
    odds: NDArray[np.float64]  # (E,) how much better than a coin a round was predicted
    shift: NDArray[np.int64]  # (E,) powers of two to multiply these by


not_saved(Trust, "odds", "shift")
declare(Trust, first=FIXED)


def start_trust(first: NDArray[np.float64]) -> Trust:
    """Return forecasters that have not predicted anything yet."""
    return Trust(first.copy(), first, np.ones(len(first)), np.zeros(len(first), np.int64))


@kernel
def clear_odds(trust: Any) -> None:
    """Prepare for the outcomes of a round."""
    for e in range(len(trust.odds)):
        trust.odds[e] = 1.0
        trust.shift[e] = 0


@cold
def fold(trust: Any) -> None:
    """Keep the odds in range; call it after every `MANY` outcomes."""
    for e in range(len(trust.odds)):
        mantissa, power = math.frexp(trust.odds[e])
        trust.odds[e] = mantissa
        trust.shift[e] += power


@cold
def unfold(trust: Any) -> None:
    """Multiply the powers of two back in, relative to the best forecaster that is trusted."""
    top, found = trust.shift[0], False
    for e in range(len(trust.odds)):
        if trust.now[e] > 0.0 and (not found or trust.shift[e] > top):
            top, found = trust.shift[e], True
    for e in range(len(trust.odds)):
        trust.odds[e] = math.ldexp(trust.odds[e], int(min(max(trust.shift[e] - top, -2000), 0)))


@kernel
def settle(trust: Any, forget: float) -> None:
    """Multiply the trust by the odds; a share of it goes back to where it was at first."""
    total = 0.0
    for e in range(len(trust.now)):
        trust.now[e] *= trust.odds[e]
        total += trust.now[e]
    for e in range(len(trust.now)):
        trust.now[e] = (1.0 - forget) * trust.now[e] / total + forget * trust.first[e]
