"""Which client should get which channel if the means are known, for one round and in the long run.

Chapter "Matching" has the proofs.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from freshband.errors import ParameterError
from freshband.parameters import whole_number
from freshband.theory._inputs import Array, positive_numbers, probabilities

_SLACK = 1e-11  # the chance of an age beyond the default cut-off, roughly
_DEEPEST = 1000  # ages; a million states


class Optimum(NamedTuple):
    """The least long-run mean of the sum of two clients' ages.

    Attributes
    ----------
    low, high : float64 array
        Bounds on it, up to the effect of cutting ages off.
    crossing_cost : float64 array, shape (..., cap, cap)
        The long-run cost of giving client 1, instead of client 2, the worse channel once, for ages
        `a_1 = 1 … cap` (rows) and `a_2 = 1 … cap` (columns). Where it is positive, client 1 should
        get the better channel.
    """

    low: Array
    high: Array
    crossing_cost: Array


def age_sorted(ages: ArrayLike, means: ArrayLike) -> NDArray[np.int64]:
    """Return the channel of each client that is best for one round: the oldest on the best.

    Parameters
    ----------
    ages : array of float >= 0, shape (..., M)
        Ages before the round; of equal ages the first client comes first.
    means : array of float in [0, 1], shape (..., N), N >= M
        Means of the channels, of which the M best are used; of equal means the first comes first.

    Examples
    --------
    >>> age_sorted([1, 4, 2], [0.3, 0.9, 0.1, 0.5]).tolist()
    [0, 1, 3]
    """
    a, mu = _ages_and_means(ages, means)
    oldest = np.argsort(-a, axis=-1, kind="stable")
    best = np.argsort(-mu, axis=-1, kind="stable")[..., : a.shape[-1]]
    assignment = np.empty(a.shape, np.int64)
    np.put_along_axis(assignment, oldest, best, axis=-1)
    return assignment


def next_age_sum(ages: ArrayLike, means: ArrayLike, assignment: ArrayLike | None = None) -> Array:
    """Return the expected sum of ages after a round: `M + Σ_i (1 - μ_{k(i)}) a_i`.

    Parameters
    ----------
    ages, means : as in age_sorted
    assignment : array of int, shape (..., M), optional
        The channel of each client; by default the best assignment, `age_sorted`.

    Examples
    --------
    >>> float(next_age_sum([1, 4], [0.9, 0.5])), float(next_age_sum([1, 4], [0.9, 0.5], [0, 1]))
    (2.9, 4.1)
    """
    a, mu = _ages_and_means(ages, means)
    channels = np.asarray(age_sorted(ages, means) if assignment is None else assignment)
    if channels.dtype.kind not in "iu" or channels.shape[-1:] != a.shape[-1:]:
        raise ParameterError(
            f"assignment must be a channel for each of {a.shape[-1]} clients, got {assignment!r}"
        )
    if channels.min() < 0 or channels.max() >= mu.shape[-1]:
        raise ParameterError(f"assignment must be channels in [0, {mu.shape[-1] - 1}]")
    used = np.take_along_axis(*_alike(mu, channels), axis=-1)
    return np.asarray(a.shape[-1] + ((1.0 - used) * a).sum(axis=-1))


def two_client_optimum(
    means: ArrayLike, *, cap: int | None = None, precision: float = 1e-9
) -> Optimum:
    """Return the least possible long-run sum of ages of two clients on two known channels.

    It is found by relative value iteration on pairs of ages.

    **Deviations.** The paper lets clients take turns and has no such optimum (erratum E6). In all
    cases tried the optimal rule is `age_sorted` in every state.

    Parameters
    ----------
    means : array of float in [0, 1], shape (..., 2)
        Means of the two channels, in any order; not both 0.
    cap : int >= 2, optional
        Greater ages count as this one, which can only lower the cost. The default is so large that
        the better channel fails ``cap / 2`` times in a row with probability 1e-11.
    precision : float > 0, default 1e-9
        The largest difference between the bounds ``low`` and ``high``.

    Examples
    --------
    >>> best = two_client_optimum([0.9, 0.5])
    >>> round(float(best.low), 6), bool(best.high - best.low < 1e-9)
    (2.690058, True)
    >>> bool(best.crossing_cost[4, 1] > 0)  # ages 5 and 2: client 1 gets the better channel
    True
    """
    mu = np.sort(probabilities("means", means), axis=-1)[..., ::-1]
    if mu.ndim == 0 or mu.shape[-1] != 2 or not (mu[..., 0] > 0).all():
        raise ParameterError(f"means must be pairs, not both 0, got {means!r}")
    if not (np.ndim(precision) == 0 and precision > 0):
        raise ParameterError(f"precision must be a number > 0, got {precision!r}")
    depth = _depth(float(mu[..., 0].min())) if cap is None else whole_number("cap", cap, at_least=2)
    batch = mu.reshape(-1, 2)
    worth = np.zeros((len(batch), depth, depth))
    while True:
        straight = _look_ahead(batch, worth)
        crossed = _look_ahead(batch[:, ::-1], worth)
        better = np.minimum(straight, crossed)
        change = better - worth
        low, high = change.min(axis=(1, 2)), change.max(axis=(1, 2))
        if (high - low).max() < precision:
            break
        worth = better - better[:, :1, :1]
    lead = mu.shape[:-1]
    cost = (crossed - straight).reshape(*lead, depth, depth)
    return Optimum(low.reshape(lead), high.reshape(lead), cost)


def _depth(best: float) -> int:
    if best == 1:
        return 20
    depth = max(20, math.ceil(2 * math.log(_SLACK) / math.log1p(-best)))
    if depth > _DEEPEST:
        raise ParameterError(f"means must have a better one >= 0.05, or cap be given, got {best}")
    return depth


def _look_ahead(means: Array, worth: Array) -> Array:
    """Return the expected cost of a round from each pair of ages plus the value of the next."""
    age = np.arange(1, worth.shape[1] + 1)
    p, q = (means[:, i, None, None] for i in range(2))  # success of client 1, of client 2
    older = np.concatenate([worth[:, 1:], worth[:, -1:]], axis=1)  # client 1 a round older
    both = np.concatenate([older[:, :, 1:], older[:, :, -1:]], axis=2)
    fresh_first = np.concatenate([worth[:, :1, 1:], worth[:, :1, -1:]], axis=2)
    cost = 2 + (1 - p) * age[:, None] + (1 - q) * age
    reset = p * q * worth[:, :1, :1] + p * (1 - q) * fresh_first + (1 - p) * q * older[:, :, :1]
    return np.asarray(cost + reset + (1 - p) * (1 - q) * both)


def _ages_and_means(ages: ArrayLike, means: ArrayLike) -> tuple[Array, Array]:
    a = positive_numbers("ages", ages, or_zero=True)
    mu = probabilities("means", means)
    if a.ndim == 0 or mu.ndim == 0 or not 1 <= a.shape[-1] <= mu.shape[-1]:
        raise ParameterError(
            "ages and means must have the shapes (..., M) and (..., N), 1 <= M <= N, got "
            f"{a.shape} and {mu.shape}"
        )
    return _alike(a, mu)


def _alike(a: NDArray[Any], b: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Broadcast all axes but the last."""
    lead = np.broadcast_shapes(a.shape[:-1], b.shape[:-1])
    return np.broadcast_to(a, (*lead, a.shape[-1])), np.broadcast_to(b, (*lead, b.shape[-1]))
