"""Claims about results and how they are judged: paired runs, Student's t, Holm's correction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike

from freshband.statistics import holm, margin, p_value

__all__ = ["Claim", "Verdict", "correct", "interval", "judge", "judge_order"]

Verdict = Literal[
    "reproduced", "exceeded", "reached by random too", "not reproduced", "holds", "does not hold"
]
_LEVEL: Final = 0.05  # of the tests of a figure together


@dataclass(frozen=True)
class Claim:
    """A statement and its verdict."""

    what: str
    paper: str  # "-" where the statement is not the paper's
    ours: float  # the mean that was measured
    low: float  # its 95 % interval (Student's t), up to high; NaN where there is none
    high: float
    p: float  # of Student's t test against the bound, two-sided; NaN where there is none
    unit: str
    verdict: Verdict
    why: str = ""  # further measured values beside the verdict
    beyond: float = 0.0  # the mean's distance from the bound; positive supports the claim
    ordered: bool = False  # whether it has to be beyond the bound, rather than to reach it
    easy: bool = False  # whether random scheduling reaches the bound as well


def judge(
    what: str,
    paper: str,
    values: ArrayLike,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    random: ArrayLike | None = None,
    unit: str = "",
    why: str = "",
) -> Claim:
    """Return a claim about a mean over runs: ``exceeded`` is clearly beyond the bound.

    Parameters
    ----------
    what, paper, unit, why
        As in `Claim`.
    values : array_like
        One value per run.
    at_least, at_most : float
        The bound that the mean has to reach; exactly one of the two is given.
    random : array_like, optional
        What random scheduling achieves: a bound that it reaches as well proves nothing.

    Examples
    --------
    >>> judge("accuracy", "55 %", [58.0, 59.0, 60.0], at_least=55, unit="%").verdict
    'exceeded'
    >>> judge("accuracy", "55 %", [58.0, 59.0, 60.0], at_least=55, random=[57.0, 58.0]).verdict
    'reached by random too'
    >>> judge("share of the gap, at least half", "-", [0.4, 0.7], at_least=0.5).verdict
    'holds'
    """
    if (at_least is None) == (at_most is None):
        raise ValueError("a claim needs at_least or at_most")
    sign, bound = (1.0, at_least) if at_least is not None else (-1.0, at_most)
    assert bound is not None
    easy = random is not None and bool(
        sign * (np.asarray(random, dtype=np.float64).mean() - bound) >= 0
    )
    return _judge(what, paper, values, bound, sign, unit=unit, why=why, easy=easy)


def judge_order(
    what: str, paper: str, differences: ArrayLike, *, unit: str = "", why: str = ""
) -> Claim:
    """Return a claim that something is clearly larger.

    ``differences`` has one value per run; positive ones support the claim. Other parameters are as
    in `judge`.

    Examples
    --------
    >>> judge_order("A above B", "above", [1.0, -1.2, 0.4]).verdict
    'not reproduced'
    >>> judge_order("C above A", "-", [1.0, 1.2, 0.9]).verdict
    'holds'
    """
    return _judge(what, paper, differences, 0.0, 1.0, unit=unit, why=why, ordered=True)


def correct(claims: Sequence[Claim]) -> list[Claim]:
    """Return the claims of a figure, with p values corrected for their number (Holm's method).

    Examples
    --------
    >>> one = judge_order("A above B", "above", [1.0, 1.2, 0.9, 0.1])
    >>> one.verdict, [claim.verdict for claim in correct([one, one])]
    ('reproduced', ['not reproduced', 'not reproduced'])
    """
    corrected = zip(claims, holm([claim.p for claim in claims]), strict=True)
    return [replace(claim, p=p, verdict=_verdict(claim, p)) for claim, p in corrected]


def interval(values: ArrayLike) -> str:
    """Return a mean over runs and its 95 % interval, for values that no verdict is given on.

    Examples
    --------
    >>> interval([1.0, 2.0, 3.0])
    '2.00 [-0.48, 4.48]'
    """
    array = np.asarray(values, dtype=np.float64)
    mean, half = float(array.mean()), float(margin(array))
    return f"{mean:.2f} [{mean - half:.2f}, {mean + half:.2f}]"


def _judge(
    what: str, paper: str, values: ArrayLike, bound: float, sign: float, **more: Any
) -> Claim:
    array = np.asarray(values, dtype=np.float64).ravel()
    mean, half = float(array.mean()), float(margin(array))
    p = p_value(array, bound)
    more = {"beyond": sign * (mean - bound), **more}
    unit = more.pop("unit")
    draft = Claim(what, paper, mean, mean - half, mean + half, p, unit, "holds", **more)
    return replace(draft, verdict=_verdict(draft, p))


def _verdict(claim: Claim, p: float) -> Verdict:
    clear = claim.beyond > 0 and p < _LEVEL
    reached = claim.beyond > 0 or (not claim.ordered and claim.beyond == 0)
    if claim.ordered and not math.isnan(p):
        reached = clear
    if claim.paper == "-":
        return "holds" if reached else "does not hold"
    if not reached:
        return "not reproduced"
    if claim.easy:
        return "reached by random too"
    return "exceeded" if clear and not claim.ordered else "reproduced"
