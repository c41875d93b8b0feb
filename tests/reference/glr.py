"""The Bernoulli GLR test as Algorithm 2 prints it: look at every split, in kl form.

`scan` is compiled, so that thousands of streams are feasible; `scan_in_numpy` is the same in
array notation and checks it. Thresholds are written down a second time, by other means.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import lambertw, xlogy, zeta


class Verdicts(NamedTuple):
    """What the scan says at every observation of a stream."""

    statistic: NDArray[np.float64]  # (n,) G
    split: NDArray[np.int64]  # (n,) the s that attains it, 0 if G = 0
    alarm: NDArray[np.bool_]  # (n,) G >= beta(n, delta)


@numba.njit(error_model="numpy")
def kl(p: float, q: float) -> float:
    """Divergence of Bernoulli(p) from Bernoulli(q), 0 ln 0 = 0."""
    first = p * math.log(p / q) if p > 0 else 0.0
    second = (1 - p) * math.log((1 - p) / (1 - q)) if p < 1 else 0.0
    return first + second


@numba.njit(error_model="numpy")
def value_at(sums: NDArray[np.int64], s: int, n: int) -> float:
    """Likelihood ratio of a change after s of n observations; sums[i] is S_i."""
    mean = sums[n] / n
    return s * kl(sums[s] / s, mean) + (n - s) * kl((sums[n] - sums[s]) / (n - s), mean)


@numba.njit(error_model="numpy")
def best_split(sums: NDArray[np.int64], n: int) -> tuple[float, int]:
    """G_n and its argmax."""
    best, where = 0.0, 0
    for s in range(1, n):
        value = value_at(sums, s, n)
        if value > best:
            best, where = value, s
    return best, where


@numba.njit(error_model="numpy")
def _scan(outcomes, resets, limits, sums, statistic, split, alarm):  # type: ignore[no-untyped-def]
    n = 0
    for i in range(len(outcomes)):
        if resets[i]:
            n = 0
        n += 1
        sums[n] = sums[n - 1] + outcomes[i]
        statistic[i], split[i] = best_split(sums, n)
        alarm[i] = statistic[i] >= limits[n]


def scan(
    outcomes: NDArray[np.int8], limits: NDArray[np.float64], resets: NDArray[np.bool_] | None = None
) -> Verdicts:
    """Run the test over a stream that starts afresh before every observation marked in resets."""
    length = len(outcomes)
    resets = np.zeros(length, np.bool_) if resets is None else resets
    verdicts = Verdicts(np.zeros(length), np.zeros(length, np.int64), np.zeros(length, np.bool_))
    _scan(outcomes, resets, limits, np.zeros(length + 1, np.int64), *verdicts)
    return verdicts


def scan_in_numpy(outcomes: NDArray[np.int8]) -> tuple[float, int]:
    """G and its argmax for one stream, in array notation."""
    n = len(outcomes)
    if n < 2:
        return 0.0, 0
    s = np.arange(1, n)
    before = np.cumsum(outcomes)[:-1] / s
    after = (np.sum(outcomes) - np.cumsum(outcomes)[:-1]) / (n - s)
    mean = np.mean(outcomes)
    if mean in (0, 1):
        return 0.0, 0
    values = s * _kl_array(before, mean) + (n - s) * _kl_array(after, mean)
    return float(values.max()), int(s[values.argmax()])


def _kl_array(p: NDArray[np.float64], q: float) -> NDArray[np.float64]:
    divergence: NDArray[np.float64] = (
        xlogy(p, p) - xlogy(p, q) + xlogy(1 - p, 1 - p) - xlogy(1 - p, 1 - q)
    )
    return divergence


def limits(length: int, delta: float, rule: str) -> NDArray[np.float64]:
    """beta(n, delta) for n = 0..length; position 0 is not used."""
    return np.concatenate(([math.inf], limit(np.arange(1.0, length + 1), delta, rule)))


def limit(n: ArrayLike, delta: float, rule: str) -> NDArray[np.float64]:
    """beta(n, delta) of erratum E15g, written as there."""
    n = np.asarray(n, np.float64)
    if rule == "lai":
        return np.log(n * np.sqrt(n) / delta)
    besson = np.log(3 * n * np.sqrt(n) / delta)
    if rule == "besson":
        return besson
    if rule == "paper":
        return (n + 1) / n * besson
    assert rule == "kaufmann"
    return 2 * mixture(besson / 2) + 6 * np.log(1 + np.log(n))


def mixture(x: ArrayLike) -> NDArray[np.float64]:
    """Kaufmann and Koolen's T(x) = 2 h~((h^-1(1+x) + ln(2 zeta(2))) / 2), equation (13)."""
    return 2 * _h_tilde((_h_inverse(1 + np.asarray(x)) + math.log(2 * zeta(2))) / 2)


def _h_inverse(y: NDArray[np.float64]) -> NDArray[np.float64]:
    """The u >= 1 with u - ln u = y, by Lambert's W."""
    u: NDArray[np.float64] = -lambertw(-np.exp(-y), -1).real
    return u


def _h_tilde(y: NDArray[np.float64]) -> NDArray[np.float64]:
    corner = 1 / math.log(3 / 2)
    corner -= math.log(corner)
    u = _h_inverse(np.maximum(y, corner))
    return np.where(y >= corner, np.exp(1 / u) * u, 3 / 2 * (y - math.log(math.log(3 / 2))))
