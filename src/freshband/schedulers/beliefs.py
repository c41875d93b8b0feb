"""What a scheduler believes about the channels, for people: `Coordinator.beliefs`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from freshband.states import _fields, _is_state


class Beliefs(NamedTuple):
    """The state of knowledge after a round; M clients and N channels.

    Attributes
    ----------
    models : mapping of str to float
        The probability of each model of the air.
    hazard : float
        The expected probability of a switch of a channel per round.
    rate, spread : ndarray, shape (N,), or (M, N) where links may differ
        Posterior mean and standard deviation of the success rates.
    changed : ndarray, shape (N,)
        The probability that a channel has switched since its last reported change.
    segment_age : ndarray, shape (N,)
        The expected number of rounds since a channel last switched.
    period : ndarray of int, shape (N,), or None where no periods are looked for
        The number of rounds after which a channel is believed to repeat, or a multiple of it; 0
        where none is believed with more than 1/2.
    """

    models: Mapping[str, float]
    hazard: float
    rate: NDArray[np.float64]
    spread: NDArray[np.float64]
    changed: NDArray[np.float64]
    segment_age: NDArray[np.float64]
    period: NDArray[np.int64] | None = None


@functools.singledispatch
def explain(state: Any) -> Beliefs | None:
    """Return what a scheduler's state believes, or None if it cannot tell.

    A state type registers how with ``@explain.register``; one that wraps another is asked about it.
    """
    found = (explain(part) for _, part in _fields(state) if _is_state(part))
    return next((beliefs for beliefs in found if beliefs is not None), None)
