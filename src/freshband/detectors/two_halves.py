"""The window test of M-UCB: the two halves of the last outcomes must not differ much."""

from __future__ import annotations

from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from freshband.detectors.base import forget, forgets_one_by_one, push, since_change
from freshband.parameters import Parameters
from freshband.states import FIXED, FLAGS, between, declare

_BOOK = np.dtype(
    [
        ("count", np.int64),  # outcomes so far
        ("older", np.int64),  # successes in the older half of the window
        ("newer", np.int64),  # and in the newer half
    ]
)


@forgets_one_by_one
class _TwoHalvesState(NamedTuple):
    """The last outcomes of N streams; w is the window."""

    book: NDArray[np.void]  # (N,) of _BOOK
    ring: NDArray[np.int8]  # (N, w)
    limit: NDArray[np.float64]  # (1,) b


_COUNT = between(0, "round")
declare(
    _TwoHalvesState,
    book={"count": _COUNT, "older": _COUNT, "newer": _COUNT},
    ring=FLAGS,
    limit=FIXED,
)


@final
class TwoHalves(Parameters):
    """Alarm when the two halves of the last ``window`` outcomes differ by more than a threshold.

    The statistic is `|successes in the newer half - successes in the older half|`.

    Parameters
    ----------
    window : int >= 2, default 100
        The number of outcomes w that are compared, rounded down to an even number. There is no
        alarm before a stream has as many.
    threshold : float > 0, default 27.0
        The largest difference b without an alarm. By Hoeffding's inequality a test of a stream
        that has not changed raises one with a probability of at most `2 exp(-2 b² / w)`.

    Notes
    -----
    **Deviations.** None.

    Examples
    --------
    >>> from freshband.detectors.base import push, since_change
    >>> state = TwoHalves(window=20, threshold=6.0).start(n_channels=1)
    >>> stream = [1] * 40 + [0] * 40
    >>> alarms = [n for n, x in enumerate(stream, start=1) if push(state, 0, x)]
    >>> alarms[0]
    47

    References
    ----------
    Cao, Wen, Kveton, Xie, "Nearly optimal adaptive procedure with change detection for
    piecewise-stationary bandit", AISTATS 2019 (Algorithm 2).
    """

    window: int = Field(default=100, ge=2)
    threshold: float = Field(default=27.0, gt=0)

    def start(self, n_channels: int) -> _TwoHalvesState:
        """Allocate the state for ``n_channels`` streams."""
        return _TwoHalvesState(
            book=np.zeros(n_channels, _BOOK),
            ring=np.zeros((n_channels, self.window // 2 * 2), np.int8),
            limit=np.array([self.threshold]),
        )


@push.register(_TwoHalvesState)
def _push(detector: _TwoHalvesState, channel: int, outcome: int) -> bool:
    book = detector.book[channel]
    ring = detector.ring[channel]
    n = book["count"]
    window = len(ring)
    half = window // 2
    if n >= window:
        book["older"] -= ring[n % window]  # leaves the window
    if n >= half:
        middle = ring[(n + half) % window]
        book["older"] += middle
        book["newer"] -= middle
    ring[n % window] = outcome
    book["newer"] += outcome
    book["count"] = n + 1
    return bool(n + 1 >= window and abs(book["newer"] - book["older"]) > detector.limit[0])


@since_change.register(_TwoHalvesState)
def _since_change(detector: _TwoHalvesState, channel: int) -> tuple[float, float]:
    return float(detector.ring.shape[1] // 2), float(detector.book[channel]["newer"])


@forget.register(_TwoHalvesState)
def _forget(detector: _TwoHalvesState, channel: int) -> None:
    book: Any = detector.book[channel]
    book["count"] = 0
    book["older"] = 0
    book["newer"] = 0
