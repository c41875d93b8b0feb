"""Fig. 4: cumulative AoI variance over rounds, from the very runs of Fig. 3.

`Σ_t V_t / M` (erratum E18). The paper reads 480 -> 130 and 360 -> 80 (piecewise, random against
adaptive matching, two data sets), 400 -> 100 and 800 -> 230 (extreme): cuts of 73 and 78 %, 75 and
71 %; slopes after round 150 of 1.5 against 0.2. Random scheduling cannot depend on the data set, so
the paper must have used several airs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import xarray as xr

from freshband.experiments import fig3
from freshband.experiments.base import Claim, Piece, Scale, judge, judge_order

__all__ = ["TITLE", "claims", "pieces"]

TITLE: Final = "Cumulative AoI variance over rounds"
_CUTS: Final = {"piecewise": ("73 to 78 %", 73.0), "extreme": ("71 to 75 %", 71.0)}


def pieces(scale: Scale) -> Sequence[Piece]:
    """Return the runs of Fig. 3."""
    return fig3.pieces(scale)


def claims(results: Mapping[str, xr.Dataset], scale: Scale) -> Sequence[Claim]:
    """Check the cuts of the variance, the slopes, and how accuracy spreads over clients."""
    dataset = fig3.DATASETS[scale][0]  # ages do not depend on the data set
    found = []
    for air, (paper, bound) in _CUTS.items():
        total = fig3.gather(results, dataset, air, "cumulative_variance")
        spread = fig3.gather(results, dataset, air, "accuracy_spread")
        last = {role: values[:, -1] for role, values in total.items()}
        for role in ("learner, adaptive matching", "ours"):
            cut = 100 * (1 - last[role].mean() / last["random"].mean())
            each = 100 * (1 - last[role] / last["random"])
            found.append(
                judge(
                    f"{air}: cut of the cumulative variance against random, {role}",
                    paper if role != "ours" else "-",
                    each,
                    at_least=bound,
                    unit="%",
                    why=f"{last['random'].mean():.0f} -> {last[role].mean():.0f}, "
                    f"{cut:.0f} % of the mean",
                )
            )
            slope = (total[role][:, -1] - total[role][:, 149]) / 100
            base = (total["random"][:, -1] - total["random"][:, 149]) / 100
            found.append(
                judge(
                    f"{air}: slope after round 150 over random's, {role}",
                    "0.2 / 1.5" if role != "ours" else "-",
                    slope / base,
                    at_most=0.2 / 1.5,
                    unit="ratio",
                    why=f"{slope.mean():.2f} against {base.mean():.2f} a round",
                )
            )
            found.append(
                judge_order(
                    f"{dataset}, {air}: spread of accuracy over clients, {role}, below random",
                    "-",
                    100 * (spread["random"][:, -1] - spread[role][:, -1]),
                    unit="points",
                )
            )
    return found
