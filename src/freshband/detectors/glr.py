"""The exact Bernoulli generalised likelihood ratio test, at nearly constant cost.

For outcomes `x_1..x_n` with partial sums `S_s`, Algorithm 2 of the paper raises an alarm when

    G_n = max over 1 <= s < n of  s kl(mean_{1:s}, mean_{1:n}) + (n-s) kl(mean_{s+1:n}, mean_{1:n})

reaches a threshold `beta(n, delta)`. The decision at every observation is that of a scan over all
s, but only vertices of the convex hull of the path `(s, S_s)` are examined, all logarithms are of
integers and come from a table, and the statistic is evaluated again only when an alarm has become
possible. Close to the threshold it is evaluated in kl form, so that rounding cannot change a
decision. The page "Concepts" of the documentation proves that this is enough.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Literal, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from freshband._jit import cold, kernel
from freshband.detectors.base import forget, forgets_one_by_one, push, since_change
from freshband.parameters import Parameters
from freshband.states import (
    FIXED,
    FLAGS,
    Moment,
    _grown,
    between,
    declare,
    not_saved,
    record,
    reserve,
)

_THRESHOLDS = ("paper", "besson", "kaufmann", "lai")

_TABLE_END = 1 << 20  # most entries of the x ln x table: 8 MiB, shared by all runs
_CLOSE = 1e-6  # distance to the threshold below which kl form is used, and its margin
_ROUNDING = 1e-13  # bound on the rounding of the table form, per observation
_UPPER, _LOWER = 0, 1


_BOOK = np.dtype(  # the state of the test for one stream
    [
        ("count", np.int64),  # observations so far, n
        ("ones", np.int64),  # successes among them, S_n
        ("last", np.int64),  # the latest outcome
        ("patience", np.float64),  # nats that may be spent before the next evaluation
        ("price", np.float64, 2),  # nats that a Bad and a Good outcome cost
        ("size", np.int64, 2),  # vertices on the upper and the lower hull
        ("split", np.int64),  # observations before the last change found, s
        ("before", np.int64),  # successes among those, S_s
        ("statistic", np.float64),  # G at the last evaluation
    ]
)
_VERTEX = np.dtype([("s", np.int64), ("ones", np.int64), ("fit", np.float64)])  # s, S_s, l(S_s, s)


@forgets_one_by_one
class _GlrState(NamedTuple):
    """The state of the test for N streams; H is the room for hull vertices."""

    book: NDArray[np.void]  # (N,) of _BOOK
    hull: NDArray[np.void]  # (N, 2, H) of _VERTEX, upper and lower
    rule: NDArray[np.void]  # delta and the threshold's number
    table: NDArray[np.float64]  # (L,) x ln x


not_saved(_GlrState, "table")


def _has_hulls(state: _GlrState, at: Moment) -> bool:
    """Whether counts are those of outcomes so far, and the vertices those of hulls of such paths.

    Only of strictly convex hulls is it known how much room they need.
    """
    book, hull = state.book, state.hull
    sizes = book["size"]
    if ((book["ones"] > book["count"]).any()) or (sizes > hull.shape[2]).any():
        return False
    if (book["count"] > 2 * (hull.shape[2] + 8) ** 1.5).any():  # the room of which is there
        return False
    for channel, side in np.argwhere(sizes > 0).tolist():
        corners = hull[channel, side, : sizes[channel, side]]
        ends = {"s": book["count"][channel], "ones": book["ones"][channel]}
        along, up = (np.diff(corners[name], prepend=0, append=ends[name]) for name in ends)
        turns = up[:-2] * along[1:-1] - up[1:-1] * along[:-2]
        if not ((along > 0) & (up >= 0) & (up <= along)).all():
            return False
        if not ((turns > 0) if side == _UPPER else (turns < 0)).all():
            return False
    return True


_COUNT = between(0, "round")
declare(
    _GlrState,
    grows=("hull",),
    invariant=_has_hulls,
    book={
        "count": _COUNT,
        "ones": _COUNT,
        "last": FLAGS,
        "patience": between(-np.inf),
        "price": between(0),
        "size": _COUNT,
        "split": _COUNT,
        "before": _COUNT,
        "statistic": between(-np.inf),
    },
    hull={"s": _COUNT, "ones": _COUNT, "fit": between(-np.inf)},
    rule=FIXED,
)


@final
class Glr(Parameters):
    """Exact Bernoulli GLR change detector with change location.

    Parameters
    ----------
    delta : float in (0, 1), default 0.001
        The false-alarm probability δ of the threshold, for a stream of any length.
    threshold : {"paper", "besson", "kaufmann", "lai"}, default "paper"
        `beta(n, delta)`, see `threshold`.

    Notes
    -----
    **Deviations.** (1) The supremum over `s in [1, n-1]` is empty at `n = 1`: the statistic is 0
    there. (2) The paper's threshold is proved for the quadratic divergence; with kl it is
    conservative in practice (erratum E15g: 10 false alarms per 1000 streams of 20,000 at δ = 0.05).

    Examples
    --------
    >>> from freshband.detectors.base import push
    >>> state = Glr(delta=0.001).start(n_channels=1)
    >>> stream = [1] * 40 + [0] * 40
    >>> alarms = [n for n, x in enumerate(stream, start=1) if push(state, 0, x)]
    >>> alarms[0], int(state.book[0]["split"])
    (45, 40)

    References
    ----------
    Besson, Kaufmann, Maillard, Seznec, "Efficient change-point detection for tackling
    piecewise-stationary bandits", JMLR 2022 (the test, the threshold `besson`). Maillard, ALT 2019
    (the threshold `paper`, proved there for the quadratic divergence). Kaufmann and Koolen, JMLR
    2021 (the threshold `kaufmann`). Romano et al., JMLR 2023 (hulls in change detection).
    """

    delta: float = Field(default=0.001, gt=0, lt=1)
    threshold: Literal["paper", "besson", "kaufmann", "lai"] = "paper"

    def start(self, n_channels: int) -> _GlrState:
        """Allocate the state for ``n_channels`` streams, with room for 256 observations each."""
        return _GlrState(
            book=np.zeros(n_channels, _BOOK),
            hull=np.zeros((n_channels, 2, _hull_capacity(256)), _VERTEX),
            rule=record(delta=self.delta, threshold=float(_THRESHOLDS.index(self.threshold))),
            table=_table(1024),
        )


@functools.cache
def _hull_capacity(n: int) -> int:
    """Return the most vertices one hull of a 0/1 path of n steps can have, about 0.88 n^(2/3).

    Hull edges are distinct primitive lattice vectors `(q, p)`, `0 <= p <= q`, whose lengths `q`
    sum to at most n; taking the shortest first gives the maximum.
    """
    vertices, left, q = 0, n, 1
    while left >= q:
        primitive = 2 if q == 1 else sum(math.gcd(p, q) == 1 for p in range(1, q))
        taken = min(primitive, left // q)
        vertices += taken
        left -= taken * q
        q += 1
    return vertices


@functools.cache
def _table(length: int) -> NDArray[np.float64]:
    """Return `x ln x` for x below ``length``; shared, so callers must not write to it."""
    x = np.arange(length, dtype=np.float64)
    x[0] = 1.0
    table: NDArray[np.float64] = x * np.log(x)
    return table


@reserve.register(_GlrState)
def _reserve(state: _GlrState, rounds: int) -> _GlrState:
    most = 1 << (int(state.book["count"].max(initial=0)) + rounds).bit_length()  # seldom grows
    more = _hull_capacity(most) - state.hull.shape[2]
    if more > 0:
        state = state._replace(hull=_grown(state.hull, axis=2, more=more))
    wanted = min(_TABLE_END, max(1024, most))
    return state if len(state.table) >= wanted else state._replace(table=_table(wanted))


@kernel
def _x_log_x(table: Any, x: int) -> float:
    return table[x] if x < len(table) else x * math.log(x)


@kernel
def _fit(table: Any, ones: int, n: int) -> float:
    """l(k, n), the maximum log-likelihood of k successes in n."""
    return _x_log_x(table, ones) + _x_log_x(table, n - ones) - _x_log_x(table, n)


@kernel
def _kl(p: float, q: float) -> float:
    """Bernoulli kl(p, q) with 0 ln 0 = 0; q is never at the end of [0, 1] where p is not."""
    divergence = 0.0
    if p > 0.0:
        divergence += p * math.log(p / q)
    if p < 1.0:
        divergence += (1.0 - p) * math.log((1.0 - p) / (1.0 - q))
    return divergence


@cold
def _mixture(x: float) -> float:
    """Kaufmann and Koolen's function T."""
    y = 0.5 * (_inverse_h(1.0 + x) + math.log(math.pi**2 / 3.0))  # 2 zeta(2) = pi^2 / 3
    cut = 1.0 / math.log(1.5)
    if y >= cut - math.log(cut):
        u = _inverse_h(y)
        return 2.0 * math.exp(1.0 / u) * u
    return 2.0 * 1.5 * (y - math.log(math.log(1.5)))


@cold
def _inverse_h(y: float) -> float:
    """Solve u - ln u = y for u >= 1, by Newton from above."""
    u = y + math.log(y) + 1.0
    for _ in range(50):
        step = (u - math.log(u) - y) / (1.0 - 1.0 / u) if u > 1.0 else 0.0
        u -= step
        if abs(step) < 1e-13 * u:
            break
    return u


@cold
def _level(n: int, delta: float, rule: int) -> float:
    """Return a non-decreasing lower bound of a threshold, such as ln(3 n^1.5 / delta)."""
    if rule == 3:
        return 1.5 * math.log(n) - math.log(delta)
    level = math.log(3.0) + 1.5 * math.log(n) - math.log(delta)
    if rule == 2:
        level = 2.0 * _mixture(0.5 * level) + 6.0 * math.log(1.0 + math.log(n))
    return level


@cold
def _threshold(n: int, delta: float, rule: int) -> float:
    return _level(n, delta, rule) * (1.0 + 1.0 / n if rule == 0 else 1.0)


def threshold(n: int, delta: float, rule: str = "paper") -> float:
    """Return the alarm threshold `beta(n, delta)`.

    * ``paper``: `(1 + 1/n) ln(3 n^1.5 / delta)` (Algorithm 2)
    * ``besson``: `ln(3 n^1.5 / delta)`
    * ``kaufmann``: `2 T(ln(3 n^1.5 / delta) / 2) + 6 ln(1 + ln n)` (the proved one)
    * ``lai``: `ln(n^1.5 / delta)`

    Examples
    --------
    >>> [round(threshold(100, 0.001, rule), 2) for rule in ("paper", "besson", "kaufmann", "lai")]
    [15.06, 14.91, 47.03, 13.82]
    """
    return float(_threshold(n, delta, _THRESHOLDS.index(rule)))


@kernel
def _add_corner(state: Any, channel: int, upper: bool, s: int, ones: int) -> None:
    """Push the point (s, S_s) on a hull, popping vertices it hides."""
    hull = state.hull[channel, _UPPER if upper else _LOWER]
    sizes = state.book[channel]["size"]
    size = sizes[_UPPER if upper else _LOWER]
    while size > 0:
        top = hull[size - 1]
        base_s, base_ones = 0, 0
        if size > 1:
            base_s = hull[size - 2]["s"]
            base_ones = hull[size - 2]["ones"]
        turn = (top["ones"] - base_ones) * (s - top["s"]) - (ones - top["ones"]) * (
            top["s"] - base_s
        )
        if (turn > 0) if upper else (turn < 0):
            break
        size -= 1
    vertex = hull[size]
    vertex["s"] = s
    vertex["ones"] = ones
    vertex["fit"] = _fit(state.table, ones, s)
    sizes[_UPPER if upper else _LOWER] = size + 1


@cold
def _evaluate(state: Any, channel: int) -> bool:
    """Compute G exactly, decide, and store how long no further evaluation is needed."""
    book = state.book[channel]
    n = book["count"]
    ones = book["ones"]
    best = _find_split(state, channel, False)
    rule = int(state.rule[0]["threshold"])
    level = _level(n, state.rule[0]["delta"], rule)
    limit = level * (1.0 + 1.0 / n) if rule == 0 else level
    close = _CLOSE + _ROUNDING * n
    if abs(best - limit) < close:
        best = _find_split(state, channel, True)
    book["statistic"] = best
    book["patience"] = level - best - close
    for outcome in range(2):
        seen = ones if outcome == 1 else n - ones
        book["price"][outcome] = math.log(n / seen) if seen > 0 else math.inf
    return best >= limit


@cold
def _find_split(state: Any, channel: int, closely: bool) -> float:
    """Return G over the hull vertices, from the table or, closely, in kl form as a scan would."""
    book = state.book[channel]
    n = book["count"]
    ones = book["ones"]
    whole = _fit(state.table, ones, n)
    best = 0.0
    for side in range(2):
        for v in range(book["size"][side]):
            vertex = state.hull[channel, side, v]
            s = vertex["s"]
            k = vertex["ones"]
            if closely:
                value = s * _kl(k / s, ones / n) + (n - s) * _kl((ones - k) / (n - s), ones / n)
            else:
                value = vertex["fit"] + _fit(state.table, ones - k, n - s) - whole
            if value > best:
                best = value
                book["split"] = s
                book["before"] = k
    return best


@push.register(_GlrState)
def _push(detector: _GlrState, channel: int, outcome: int) -> bool:
    book = detector.book[channel]
    n = book["count"]
    ones = book["ones"]
    if n > 0 and book["last"] != outcome:
        _add_corner(detector, channel, outcome == 0, n, ones)
    book["count"] = n + 1
    book["ones"] = ones + outcome
    book["last"] = outcome
    left = book["patience"] - book["price"][outcome]
    book["patience"] = left
    if left > 0.0:
        return False
    return _evaluate(detector, channel)


@since_change.register(_GlrState)
def _since_change(detector: _GlrState, channel: int) -> tuple[float, float]:
    book = detector.book[channel]
    return float(book["count"] - book["split"]), float(book["ones"] - book["before"])


@forget.register(_GlrState)
def _forget(detector: _GlrState, channel: int) -> None:
    book = detector.book[channel]
    book["count"] = 0
    book["ones"] = 0
    book["size"][0] = 0
    book["size"][1] = 0
    book["patience"] = 0.0
    book["statistic"] = 0.0
