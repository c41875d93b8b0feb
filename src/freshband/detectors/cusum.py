"""Two-sided CUSUM: random walks that drift down until the mean has changed."""

from __future__ import annotations

from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from freshband.detectors.base import forget, forgets_one_by_one, push, since_change
from freshband.parameters import Parameters
from freshband.states import FIXED, between, declare, record

_BOOK = np.dtype(
    [
        ("count", np.int64),  # outcomes so far
        ("ones", np.int64),  # successes among the first M
        ("walk", np.float64, 2),  # g- and g+: evidence that the mean fell, and that it rose
        ("tries", np.int64, 2),  # outcomes since each walk left 0
        ("wins", np.int64, 2),  # successes among them
    ]
)


@forgets_one_by_one
class _CusumState(NamedTuple):
    """The walks of N streams."""

    book: NDArray[np.void]  # (N,) of _BOOK
    rule: NDArray[np.void]  # M, ε and h


_COUNT = between(0, "round")
declare(
    _CusumState,
    book={
        "count": _COUNT,
        "ones": _COUNT,
        "walk": between(0),
        "tries": _COUNT,
        "wins": _COUNT,
    },
    rule=FIXED,
)


@final
class Cusum(Parameters):
    """Two-sided CUSUM test against the mean `u` of the first M outcomes.

    From then on `g+ <- max(0, g+ + x - u - ε)` and `g- <- max(0, g- + u - x - ε)`; the alarm is
    raised when one of them exceeds h.

    Parameters
    ----------
    warm_up : int >= 1, default 50
        The number of outcomes M from which the mean before the change is estimated.
    drift : float in (0, 1), default 0.1
        ε: changes of the mean smaller than this are not looked for.
    threshold : float > 0, default 8.0
        The threshold h.

    Notes
    -----
    **Deviations.** None.

    Examples
    --------
    >>> from freshband.detectors.base import push
    >>> state = Cusum(warm_up=20, threshold=5.0).start(n_channels=1)
    >>> stream = [1] * 40 + [0] * 40
    >>> alarms = [n for n, x in enumerate(stream, start=1) if push(state, 0, x)]
    >>> alarms[0]  # each loss adds 0.9
    46

    References
    ----------
    Page, "Continuous inspection schemes", Biometrika 1954. Liu, Lee, Shroff, "A change-detection
    based framework for piecewise-stationary multi-armed bandit problem", AAAI 2018 (Algorithm 2).
    """

    warm_up: int = Field(default=50, ge=1)
    drift: float = Field(default=0.1, gt=0, lt=1)
    threshold: float = Field(default=8.0, gt=0)

    def start(self, n_channels: int) -> _CusumState:
        """Allocate the state for ``n_channels`` streams."""
        return _CusumState(
            book=np.zeros(n_channels, _BOOK),
            rule=record(warm_up=self.warm_up, drift=self.drift, threshold=self.threshold),
        )


@push.register(_CusumState)
def _push(detector: _CusumState, channel: int, outcome: int) -> bool:
    book = detector.book[channel]
    rule = detector.rule[0]
    n = book["count"]
    book["count"] = n + 1
    if n < rule["warm_up"]:
        book["ones"] += outcome
        return False
    excess = outcome - book["ones"] / rule["warm_up"]
    alarm = False
    for side in range(2):
        step = (excess if side == 1 else -excess) - rule["drift"]
        walk = book["walk"][side] + step
        if walk > 0.0:
            book["tries"][side] += 1
            book["wins"][side] += outcome
        else:
            walk = 0.0
            book["tries"][side] = 0
            book["wins"][side] = 0
        book["walk"][side] = walk
        if walk > rule["threshold"]:
            alarm = True
    return alarm


@since_change.register(_CusumState)
def _since_change(detector: _CusumState, channel: int) -> tuple[float, float]:
    book = detector.book[channel]
    side = 1 if book["walk"][1] > book["walk"][0] else 0
    return float(book["tries"][side]), float(book["wins"][side])


@forget.register(_CusumState)
def _forget(detector: _CusumState, channel: int) -> None:
    book: Any = detector.book[channel]
    book["count"] = 0
    book["ones"] = 0
    for side in range(2):
        book["walk"][side] = 0.0
        book["tries"][side] = 0
        book["wins"][side] = 0
