"""Results made up, and the arithmetic of claims done again with plain numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import xarray as xr
from numpy.typing import NDArray

from freshband.experiments.base import Claim, Experiment
from freshband.experiments.training import Trained

ROUNDS = 250
LOOKS = range(5, ROUNDS + 1, 5)  # rounds in which the test set is looked at
PLACE = ("cifar10", "extreme")
THREE = {"cifar10": 3, "cifar100": 3}  # runs
T = {1: 12.7062047, 2: 4.3026527, 3: 3.1824463}  # the 97.5 % points of Student's t, from a table

Curve = Callable[[int, int], float]  # of a run and a round


def mean(values: Sequence[float]) -> float:
    return statistics.mean(map(float, values))


def error(values: Sequence[float]) -> float:
    return statistics.stdev(map(float, values)) / math.sqrt(len(values))


def check(claim: Claim, values: Sequence[float], verdict: str, why: str = "") -> None:
    """The claim is about these values, one per run."""
    check_interval(claim, mean(values), error(values), len(values))
    assert (claim.verdict, claim.why) == (verdict, why), claim.what


def check_interval(claim: Claim, middle: float, spread: float, runs: int) -> None:
    """The claim has this mean, and Student's interval of this standard error."""
    half = T[runs - 1] * spread
    assert claim.ours == pytest.approx(middle, rel=1e-4, abs=1e-4), claim.what
    assert claim.high - claim.ours == pytest.approx(half, rel=1e-3, abs=1e-4), claim.what
    assert claim.ours - claim.low == pytest.approx(half, rel=1e-3, abs=1e-4), claim.what


def check_ratio(claim: Claim, above: Sequence[float], below: Sequence[float], scale: float) -> None:
    """The claim is about a ratio of means, whose error is that of a linearised ratio."""
    ratio = mean(above) / mean(below)
    rest = [a - ratio * b for a, b in zip(above, below, strict=True)]
    check_interval(claim, scale * ratio, scale * error(rest) / mean(below), len(rest))


def told(values: Sequence[float]) -> str:
    """A mean and its 95 % interval, as they stand beside a verdict."""
    half = T[len(values) - 1] * error(values)
    return f"{mean(values):.2f} [{mean(values) - half:.2f}, {mean(values) + half:.2f}]"


# -------------------------------------------------------------------------------- results made up


def simulated(experiment: Experiment, measure: str, *values: dict[str, Sequence[float]]) -> Any:
    """Pieces with a measure by policy, run by run."""
    return {
        piece.key: xr.Dataset(
            {measure: (("policy", "run"), np.array([*by_policy.values()], dtype=float))},
            coords={"policy": list(by_policy)},
        )
        for piece, by_policy in zip(experiment.pieces(), values, strict=True)
    }


def over_rounds(curve: Curve, runs: int, every: int = 1) -> NDArray[np.float32]:
    """All runs of a curve, shape (1, runs, rounds), as files have it: NaN where nobody looked."""
    rows = [
        [curve(run, t) if t % every == 0 else math.nan for t in range(1, ROUNDS + 1)]
        for run in range(runs)
    ]
    return np.array([rows], dtype=np.float32)


def trained(experiment: Trained, **measures: dict[str, Curve]) -> dict[str, xr.Dataset]:
    """Pieces with measures that are the same at all places, by role."""
    found = {}
    pieces = (piece for piece in experiment.pieces() if "policy" in piece.config)
    for place in experiment.places:
        for role in experiment.roles(place):
            looked = {"accuracy": 5}
            arrays = {
                name: (
                    ("policy", "run", "round"),
                    over_rounds(by_role[role], experiment.runs[place[0]], looked.get(name, 1)),
                )
                for name, by_role in measures.items()
            }
            found[next(pieces).key] = xr.Dataset(arrays)
    return found


def line(end: float, by_run: Sequence[float] = (0.0, 0.01, 0.03)) -> Curve:
    """A curve that grows evenly up to the last round; runs differ by a constant."""
    return lambda run, t: end * t / ROUNDS + by_run[run]


def steady(value: float, more: float = 0.0) -> Curve:
    """A curve that stays where it is; runs differ by squares."""
    return lambda run, t: value + more * run**2


def up_to(ends: Sequence[float]) -> Curve:
    """A curve that grows evenly from 0 to a value per run."""
    return lambda run, t: ends[run] * t / ROUNDS


def looks_of(curve: Curve, run: int) -> list[float]:
    return [float(np.float32(curve(run, t))) for t in LOOKS]


def rounds_needed(curve: Curve, base: Curve, run: int) -> float:
    """Rounds until the mean of five looks reaches the base's last one, over the base's own."""

    def first(values: list[float], level: float) -> int:
        for place in range(5, len(values) + 1):
            if mean(values[place - 5 : place]) >= level:
                return LOOKS[place - 1]
        return LOOKS[-1]

    ours, own = looks_of(curve, run), looks_of(base, run)
    level = mean(own[-5:])
    return first(ours, level) / first(own, level)


def late(curve: Curve, run: int, rounds: int) -> float:
    """Mean accuracy over the last rounds, in percent."""
    return 100 * mean([value for t, value in zip(LOOKS, looks_of(curve, run), strict=True)
                       if t > ROUNDS - rounds])  # fmt: skip
