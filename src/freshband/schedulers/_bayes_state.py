"""What `bayes` knows of links that are the same for all clients, and how it begins.

A channel's mean is constant for a segment, then is drawn anew; `_segments` weighs the possible
beginnings of the present segment. There is a filter for each of a few hazards, and for channels
that switch alone and together (the paper's breakpoints). Two more forecasters count outcomes by
what came before them (`_contexts`), one by their place in a period (`_periods`). Each is trusted
as far as it has predicted well.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from freshband.schedulers._awaited import Awaited, start_awaited
from freshband.schedulers._contexts import Contexts, start_contexts
from freshband.schedulers._periods import Periods, start_periods
from freshband.schedulers._priors import Priors, start_priors
from freshband.schedulers._segments import HAZARDS, Segments, start_segments
from freshband.schedulers._trust import Trust, start_trust
from freshband.states import FIXED, FLAGS, between, declare, record

_FILTERS = 2 * len(HAZARDS)  # in ``trust``: those of channels alone, then together
SHARED_CONTEXT, OWN_CONTEXT, REPEATED = range(_FILTERS, _FILTERS + 3)  # in ``trust`` after these
_IN_CONTEXTS = 0.2  # of the trust at first
_IN_PERIODS = 0.02


class BayesState(NamedTuple):
    """The filters, the trust in each, and their combined estimates."""

    hazards: NDArray[np.float64]  # (H,)
    trust: Trust  # in 2 H + 3 forecasters
    alone: Segments
    together: Segments
    contexts: Contexts
    periods: Periods
    priors: Priors
    awaited: Awaited
    first: NDArray[np.float64]  # (N, 2) expected rate, alone and together, when last heard
    second: NDArray[np.float64]  # (N, 2) and its square
    mean: NDArray[np.float64]  # (N,) posterior mean
    spread: NDArray[np.float64]  # (N,) posterior standard deviation
    values: NDArray[np.float64]  # (N,) index
    drought: NDArray[np.float64]  # (M,) log-probability, as forecast, of a client's latest losses
    chance: NDArray[np.int8]  # (1,) whether this round is left to chance
    anchor: NDArray[np.int64]  # (N,) changes of a channel before this round are known
    options: NDArray[Any]  # a record: optimism, unrest, alarm
    clock: NDArray[np.int64]  # (1,) the coming round
    stale: NDArray[np.int8]  # (1,) whether the estimates lack outcomes that came late


declare(
    BayesState,
    hazards=FIXED,
    chance=FLAGS,
    anchor=between(0, "round"),
    options={"optimism": between(0), "unrest": FLAGS, "alarm": FLAGS},
    clock=between(0, "round"),
    stale=FLAGS,
)


def start_channels(n_clients: int, n_channels: int, slots: int, **options: float) -> BayesState:
    """Allocate the state: one beginning, and nothing heard."""
    trust = np.full(_FILTERS + 3, (1.0 - _IN_CONTEXTS - _IN_PERIODS) / _FILTERS)
    trust[SHARED_CONTEXT:REPEATED] = _IN_CONTEXTS / 2
    trust[REPEATED] = _IN_PERIODS
    priors = start_priors()
    prior = priors.pooled
    rate = prior[0] / prior[1]
    square = rate * (prior[0] + 1.0) / (prior[1] + 1.0)
    return BayesState(
        hazards=np.array(HAZARDS),
        trust=start_trust(trust),
        alone=start_segments(n_channels, n_channels, slots, rate, square),
        together=start_segments(n_channels, 1, slots, rate, square),
        contexts=start_contexts(n_channels),
        periods=start_periods(n_channels),
        priors=priors,
        awaited=start_awaited(n_channels),
        first=np.full((n_channels, 2), rate),
        second=np.full((n_channels, 2), square),
        mean=np.full(n_channels, rate),
        spread=np.full(n_channels, math.sqrt(square - rate * rate)),
        values=np.zeros(n_channels),
        drought=np.zeros(n_clients),
        chance=np.zeros(1, np.int8),
        anchor=np.ones(n_channels, np.int64),
        options=record(**options),
        clock=np.ones(1, np.int64),
        stale=np.zeros(1, np.int8),
    )
