"""Ages, regret and fairness: pure functions of recorded outcomes.

The age of client i is `a_i(t) = 1` in a round its update got through, else `a_i(t-1) + 1`, with
`a_i(0) = 1` (equation (8), clock ``"post"``, the default everywhere). Equation (4) counts from the
round after a success, so its clock ``"pre"`` shows the same number one round later (erratum E1).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from freshband.errors import ParameterError


def ages_of(delivered: ArrayLike, clock: Literal["post", "pre"] = "post") -> NDArray[np.int64]:
    """Return the ages of rounds 1, 2, … from deliveries.

    Parameters
    ----------
    delivered : array of bool, shape (rounds, n_clients)
        Whether the update of each client got through; anything but 1 means that it did not.
    clock : {"post", "pre"}, default "post"
        Equation (8), or equation (4).

    Examples
    --------
    >>> ages_of([[1, 0], [0, 0], [0, 1]]).tolist()
    [[1, 2], [2, 3], [3, 1]]
    >>> ages_of([[1, 0], [0, 0], [0, 1]], clock="pre").tolist()
    [[1, 1], [1, 2], [2, 3]]
    """
    success = _numbers("delivered", delivered) == 1
    if success.ndim != 2:
        raise ParameterError(
            f"delivered must have the shape (rounds, n_clients), got {success.shape}"
        )
    if clock not in ("post", "pre"):
        raise ParameterError(f"clock must be 'post' or 'pre', got {clock!r}")
    rounds = np.arange(1, len(success) + 1)[:, None]
    last = np.maximum.accumulate(np.where(success, rounds, 0), axis=0)  # h = 0 before any success
    post = rounds - last + 1
    if clock == "post":
        return post.astype(np.int64)
    first = np.ones((min(1, len(post)), success.shape[1]), np.int64)
    return np.concatenate([first, post[:-1]]).astype(np.int64)


def age_variance(
    ages: ArrayLike, form: Literal["per_client", "sum", "sample"] = "per_client"
) -> NDArray[np.float64]:
    """Return the spread of ages over clients, round by round.

    Parameters
    ----------
    ages : array, shape (..., n_clients)
    form : {"per_client", "sum", "sample"}, default "per_client"
        `V/M`, the reading that explains the paper's Fig. 4; `V` of equation (37); or `V/(M-1)`
        (erratum E18).

    Examples
    --------
    >>> float(age_variance([1, 1, 4])), float(age_variance([1, 1, 4], form="sum"))
    (2.0, 6.0)
    """
    a = _numbers("ages", ages)
    if a.ndim == 0 or a.shape[-1] == 0:
        raise ParameterError(f"ages must have the shape (..., n_clients), got {a.shape}")
    total = ((a - a.mean(axis=-1, keepdims=True)) ** 2).sum(axis=-1)
    divisors = {"per_client": a.shape[-1], "sum": 1, "sample": a.shape[-1] - 1}
    if form not in divisors:
        raise ParameterError(f"form must be one of {sorted(divisors)}, got {form!r}")
    if divisors[form] == 0:
        raise ParameterError("form='sample' needs at least 2 clients, got 1")
    return np.asarray(total / divisors[form], dtype=np.float64)


def jain_index(shares: ArrayLike) -> NDArray[np.float64]:
    """Return Jain's fairness index `(sum x)^2 / (M sum x^2)`: 1 is equal, 1/M is one client only.

    If all shares are 0 it is 1.
    """
    x = _numbers("shares", shares)
    if x.ndim == 0 or x.shape[-1] == 0 or not (x >= 0).all():
        raise ParameterError(f"shares must be numbers >= 0, one per client, got {shares!r}")
    squares = (x**2).sum(axis=-1) * x.shape[-1]
    total = x.sum(axis=-1) ** 2
    return np.asarray(np.where(squares > 0, total / np.where(squares > 0, squares, 1.0), 1.0))


def growth_exponent(rounds: ArrayLike, regret: ArrayLike) -> float:
    """Return b of the least-squares fit `regret ~ rounds^b` in logarithms.

    Only positive regrets are used; with fewer than two of them the result is NaN.
    """
    t, r = _numbers("rounds", rounds), _numbers("regret", regret)
    if t.ndim != 1 or t.shape != r.shape:
        raise ParameterError(
            f"rounds and regret must be lists of equal length, got {t.shape} and {r.shape}"
        )
    usable = (r > 0) & (t > 0)
    if len(np.unique(t[usable])) < 2:  # one round says nothing about growth
        return float("nan")
    x, y = np.log(t[usable]), np.log(r[usable])
    x = x - x.mean()
    return float((x * (y - y.mean())).sum() / (x**2).sum())


class Detections(NamedTuple):
    """How alarms compare with true changes."""

    detected: int  # true changes followed by an alarm before the next change
    missed: int  # true changes that were not
    false: int  # alarms beyond the first after each change, and those before any
    delay: float  # mean number of rounds from a change to its alarm, NaN without any


def match_alarms(alarms: ArrayLike, changes: ArrayLike) -> Detections:
    """Attribute alarms to changes: each change owns the first alarm before the next change.

    Both are increasing rounds; a change is the first round of a new regime.
    """
    raised, true = _rounds("alarms", alarms), _rounds("changes", changes)
    owner = np.searchsorted(true, raised, side="right") - 1  # -1: before any change
    owned, first = np.unique(owner[owner >= 0], return_index=True)
    delays = raised[owner >= 0][first] - true[owned]
    detected = len(owned)
    return Detections(
        detected=detected,
        missed=len(true) - detected,
        false=len(raised) - detected,
        delay=float(delays.mean()) if detected else float("nan"),
    )


def _numbers(name: str, values: ArrayLike) -> NDArray[np.float64]:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError(f"{name} must be numbers, got {values!r}") from None


def _rounds(name: str, values: ArrayLike) -> NDArray[np.int64]:
    numbers = _numbers(name, values)
    if numbers.ndim != 1 or (numbers % 1 != 0).any() or (np.diff(numbers) < 0).any():
        raise ParameterError(f"{name} must be whole numbers in increasing order, got {values!r}")
    return numbers.astype(np.int64)
