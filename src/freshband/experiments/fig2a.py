"""Fig. 2(a): regret of the paper's policies and of ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, final

import numpy as np
from numpy.typing import NDArray

from freshband.experiments.base import Claim, Experiment, Piece, Results, judge_order, register
from freshband.experiments.pictures import SimulatedCurves
from freshband.experiments.simulated import _fig2_piece

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Fig2a"]

_POLICIES: Final = (
    "random", "m-exp3:paper", "m-exp3:paper+aa", "glr-cucb:paper", "glr-cucb:paper+aa",  # printed
    "m-exp3", "glr-cucb", "glr-cucb:fresh", "bayes",  # ours
)  # fmt: skip
_EXP3: Final = "m-exp3:paper"
# In each pair the second has less regret: claims of the paper, and our own.
_PRINTED: Final = (
    ("random", "m-exp3:paper"),
    ("m-exp3:paper", "glr-cucb:paper"),
    ("glr-cucb:paper", "glr-cucb:paper+aa"),
    ("m-exp3:paper", "m-exp3:paper+aa"),
)
_OURS: Final = (
    ("glr-cucb:paper", "glr-cucb"),
    ("glr-cucb:paper+aa", "glr-cucb:fresh"),
    ("glr-cucb:paper+aa", "bayes"),
    ("glr-cucb:fresh", "bayes"),  # as well tuned as bayes is
)


@register("fig2a")
@final
@dataclass(frozen=True)
class Fig2a(Experiment):
    """Fig. 2(a): regret of the paper's policies and of ours, with five breakpoints.

    N = 5 channels, M = 2 clients, T = 20,000 rounds, γ = 0.5, δ = 0.001, α = 0.05 sqrt(ln T / T).
    The paper's text gives orderings only. Its policies are compared against the paper's oracle
    (mean + rotate), ours against the stronger one (mean + age). Whether the regret of M-Exp3 is
    sub-linear is tested on stationary channels as well: breakpoints disturb the quarters of a run.

    **Deviations.** Means are U[0.1, 0.9] and breakpoints equally spaced, which the paper leaves
    open (E20).
    """

    title = "Regret of the paper's policies and of ours"
    question = "Do the policies rank by regret as the paper says, and how do ours compare?"
    part = "Fig. 2a"
    order = 1
    time: ClassVar = {"quick": "seconds", "full": "a minute on a CPU"}
    quick: ClassVar = {"runs": 20, "points": 200}

    runs: int = 200
    points: int = 60

    def pieces(self) -> Sequence[Piece]:
        """Return the simulation behind the figure, and M-Exp3 on stationary channels."""
        sizes = {"runs": self.runs, "points": self.points}
        still = {"channel_options": {"n_breakpoints": 0}, "policies": [_EXP3]}
        return [
            _fig2_piece(f"policies-{self.scale}", policies=list(_POLICIES), **sizes),
            _fig2_piece(f"stationary-{self.scale}", **still, **sizes),
        ]

    def claims(self, results: Results) -> Sequence[Claim]:
        """Judge the orderings, run by run, and whether the regret of M-Exp3 is sub-linear."""
        result, still = (results[piece.key] for piece in self.pieces())
        found = []
        for worse, better in _PRINTED:
            gap = _gap(result.regret_rotate, worse, better)
            found.append(judge_order(f"{better} below {worse}", "below", gap, unit="regret"))
        found.append(_judge_sub_linear(result, "with breakpoints"))
        found.append(_judge_sub_linear(still, "stationary"))
        for printed, ours in _OURS:
            what = f"ours, {ours}, below {printed} against the mean + age oracle"
            theirs, mine = (result.regret.sel(policy=policy).mean() for policy in (printed, ours))
            why = f"{float(theirs / mine):.1f} times less"
            gap = _gap(result.regret, printed, ours)
            found.append(judge_order(what, "-", gap, unit="regret", why=why))
        return found

    def _picture(self, results: Results) -> SimulatedCurves:
        return SimulatedCurves(results[f"policies-{self.scale}"], "regret_rotate", log=True)

    figures: ClassVar = {"regret-by-policy": _picture}


def _gap(regret: xr.DataArray, worse: str, better: str) -> NDArray[np.float64]:
    return np.asarray((regret.sel(policy=worse) - regret.sel(policy=better)).values)


def _judge_sub_linear(result: xr.Dataset, channels: str) -> Claim:
    """Compare the regret of M-Exp3 in the last two quarters: sub-linear means falling."""
    curve = result.regret_rotate_curve.sel(policy=_EXP3).values
    rounds = result["round"].values
    marks = [int(np.searchsorted(rounds, share * rounds[-1])) for share in (0.5, 0.75, 1.0)]
    third, fourth = curve[:, marks[1]] - curve[:, marks[0]], curve[:, marks[2]] - curve[:, marks[1]]
    what = f"M-Exp3 sub-linear, {channels}: regret of the third quarter beyond that of the last"
    why = f"{third.mean():,.0f} against {fourth.mean():,.0f}"
    return judge_order(what, "positive", third - fourth, unit="regret", why=why)
