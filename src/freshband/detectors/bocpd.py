"""Restarted Bayesian online change-point detection: alarm when a change is likelier than none.

Every outcome is predicted by the *forecaster* of each possible beginning s of the present segment,
which has seen the outcomes since s alone. Each is compared with the one that has seen them all.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from freshband.detectors.base import forget, forgets_one_by_one, push, since_change
from freshband.parameters import Parameters
from freshband.states import FIXED, between, declare

_BOOK = np.dtype(
    [
        ("count", np.int64),  # outcomes since the restart, n
        ("ones", np.int64),  # successes among them
        ("used", np.int64),  # forecasters, without the one that has seen all
        ("best", np.int64),  # the one with the largest lead
    ]
)
_FORECASTER = np.dtype([("tries", np.float64), ("wins", np.float64), ("lead", np.float64)])


@forgets_one_by_one
class _BocpdState(NamedTuple):
    """The forecasters of N streams, at most K each."""

    book: NDArray[np.void]  # (N,) of _BOOK
    forecasters: NDArray[np.void]  # (N, K) of _FORECASTER; lead: ln(weight / that of all outcomes)
    delta: NDArray[np.float64]  # (1,)


_COUNT = between(0, "round")
declare(
    _BocpdState,
    book={
        "count": _COUNT,
        "ones": _COUNT,
        "used": _COUNT,
        "best": _COUNT,
    },
    forecasters={"tries": between(0), "wins": between(0), "lead": between(-np.inf)},
    delta=FIXED,
    invariant=lambda state, at: bool(
        (state.book["used"] <= state.forecasters.shape[1]).all()
        and (state.book["best"] < state.forecasters.shape[1]).all()
    ),
)


@final
class RestartedBocpd(Parameters):
    """Restarted Bayesian online change-point detector (R-BOCPD) for 0/1 outcomes.

    With `P` the probability of outcomes under a uniform success rate, the alarm is raised when
    `η P(x_1..x_{s-1}) P(x_s..x_n) > P(x_1..x_n)` for some s, where `η = delta / n`.

    Parameters
    ----------
    delta : float in (0, 1], default 0.01
        How much less likely a change is than none, before any outcome: the false-alarm level.
    forecasters : int >= 2, default 64
        The most beginnings s that are considered; the least likely one makes room for a new one.

    Notes
    -----
    The rule is the authors' as we read it, from their abstract and their program; the bounds that
    they prove for η were not at hand.

    **Deviations.** (1) The authors' program has `η = 1 / T` for a stream of T outcomes; here T need
    not be known, and `η = delta / n`. (2) In that program a new forecaster begins with η times the
    weight of all, before the newest outcome; here with η times the weight of the one that has seen
    all outcomes, after it. (3) The authors keep a forecaster for every outcome since the
    restart, which costs time and memory without limit; here it is exact for as many outcomes as
    there are forecasters.

    Examples
    --------
    >>> from freshband.detectors.base import push, since_change
    >>> state = RestartedBocpd(delta=0.01).start(n_channels=1)
    >>> stream = [1] * 40 + [0] * 40
    >>> alarms = [n for n, x in enumerate(stream, start=1) if push(state, 0, x)]
    >>> alarms[0]
    44

    References
    ----------
    Alami, Maillard, Féraud, "Restarted Bayesian online change-point detector achieves optimal
    detection delay", ICML 2020; program: github.com/Ralami1859/Restarted-BOCPD.
    """

    delta: float = Field(default=0.01, gt=0, le=1)
    forecasters: int = Field(default=64, ge=2)

    def start(self, n_channels: int) -> _BocpdState:
        """Allocate the state for ``n_channels`` streams."""
        return _BocpdState(
            book=np.zeros(n_channels, _BOOK),
            forecasters=np.zeros((n_channels, self.forecasters), _FORECASTER),
            delta=np.array([self.delta]),
        )


@push.register(_BocpdState)
def _push(detector: _BocpdState, channel: int, outcome: int) -> bool:
    book = detector.book[channel]
    row = detector.forecasters[channel]
    n = book["count"]
    seen = book["ones"] if outcome == 1 else n - book["ones"]
    whole = math.log((1.0 + seen) / (2.0 + n))
    used = book["used"]
    if n > 0:
        place = used
        if used < len(row):
            book["used"] = used + 1
        else:
            place = 0
            for k in range(1, used):
                if row[k]["lead"] < row[place]["lead"]:
                    place = k
        row[place]["tries"] = 0.0
        row[place]["wins"] = 0.0
        row[place]["lead"] = 0.0
    best = -math.inf
    for k in range(book["used"]):
        one = row[k]
        seen = one["wins"] if outcome == 1 else one["tries"] - one["wins"]
        one["lead"] += math.log((1.0 + seen) / (2.0 + one["tries"])) - whole
        one["tries"] += 1.0
        one["wins"] += outcome
        if one["lead"] > best:
            best = one["lead"]
            book["best"] = k
    book["count"] = n + 1
    book["ones"] += outcome
    return bool(best + math.log(detector.delta[0] / (n + 1)) > 0.0)


@since_change.register(_BocpdState)
def _since_change(detector: _BocpdState, channel: int) -> tuple[float, float]:
    one: Any = detector.forecasters[channel, detector.book[channel]["best"]]
    return float(one["tries"]), float(one["wins"])


@forget.register(_BocpdState)
def _forget(detector: _BocpdState, channel: int) -> None:
    book: Any = detector.book[channel]
    book["count"] = 0
    book["ones"] = 0
    book["used"] = 0
    book["best"] = 0
