"""The exact GLR test against the scan, and against change detectors from PyPI."""

from __future__ import annotations

import math
import subprocess
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import interleave
from freshband._jit import entry_point
from freshband._lending import lend
from freshband.detectors.base import push
from freshband.detectors.glr import Glr, threshold
from freshband.states import reserve

__all__ = ["table"]

_LENGTHS = (1_000, 10_000, 100_000, 1_000_000)
_LAST = 20  # scans cost O(n) each: they are timed on the last observations of the stream


@entry_point
def _feed(state: Any, outcomes: Any) -> int:
    state, outcomes = lend(state), lend(outcomes)
    alarms = 0
    for outcome in outcomes:
        alarms += push(state, 0, outcome)
    return alarms


@numba.njit  # type: ignore[untyped-decorator]  # numba ships no annotations
def _scan_one(sums: Any, n: int) -> float:
    """Return G_n by trying every split."""
    mean = sums[n] / n
    best = 0.0
    for s in range(1, n):
        left, right = sums[s] / s, (sums[n] - sums[s]) / (n - s)
        value = 0.0
        if left > 0:
            value += s * left * math.log(left / mean)
        if left < 1:
            value += s * (1 - left) * math.log((1 - left) / (1 - mean))
        if right > 0:
            value += (n - s) * right * math.log(right / mean)
        if right < 1:
            value += (n - s) * (1 - right) * math.log((1 - right) / (1 - mean))
        best = max(best, value)
    return best


def _numpy_scan_one(sums: NDArray[np.int64], n: int) -> float:
    """Return the same, computed with NumPy arrays."""
    s = np.arange(1, n)
    left, right = sums[1:n] / s, (sums[n] - sums[1:n]) / (n - s)
    mean = sums[n] / n
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = [
            np.where(p > 0, p * np.log(p / q), 0.0)
            for p, q in ((left, mean), (1 - left, 1 - mean), (right, mean), (1 - right, 1 - mean))
        ]
    return float((s * (parts[0] + parts[1]) + (n - s) * (parts[2] + parts[3])).max())


def _stream(n: int) -> NDArray[np.int64]:
    return (np.random.default_rng(n).random(n) < 0.7).astype(np.int64)


def _peers(python: Path, n: int) -> dict[str, float]:
    """Time detectors of another environment; microseconds per observation by name."""
    script = Path(__file__).with_name("peer_detectors.py")
    done = subprocess.run(
        [python, script, str(n)], capture_output=True, text=True, check=True, timeout=600
    )
    return {line.split()[0]: float(line.split()[1]) for line in done.stdout.splitlines()}


def table(repeats: int, peers: Path | None) -> dict[str, Any]:
    """Return nanoseconds per observation against the length of the stream."""
    rows: dict[str, dict[str, float]] = {}
    for n in _LENGTHS:
        outcomes = _stream(n)
        sums = np.concatenate([[0], outcomes.cumsum()])

        def ours(turn: int, outcomes: Any = outcomes, n: int = n) -> None:
            _feed(reserve(Glr().start(1), n), outcomes)

        def scan(turn: int, sums: Any = sums, n: int = n) -> None:
            for m in range(n - _LAST, n):
                if _scan_one(sums, m) >= threshold(m, 0.001):
                    break

        def numpy_scan(turn: int, sums: Any = sums, n: int = n) -> None:
            for m in range(n - _LAST, n):
                if _numpy_scan_one(sums, m) >= threshold(m, 0.001):
                    break

        seconds = interleave(
            {"freshband": ours, "compiled scan": scan, "NumPy scan": numpy_scan},
            max(3, min(repeats, 3_000_000 // n)),
        )
        rows[str(n)] = {
            name: value / (n if name == "freshband" else _LAST) * 1e9
            for name, value in seconds.items()
        }
        if peers is not None and n <= 100_000:
            rows[str(n)] |= {name: us * 1e3 for name, us in _peers(peers, n).items()}
    return {
        "setting": "Bernoulli(0.7), no change, delta 0.001; scans on the last 20 observations",
        "rows": rows,
    }
