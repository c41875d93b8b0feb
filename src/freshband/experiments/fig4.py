"""Fig. 4: cumulative AoI variance over rounds, from the very runs of Fig. 3.

`Σ_t V_t / M` (erratum E18). The paper reads 480 -> 130 and 360 -> 80 (piecewise, random against
adaptive matching, two data sets), 400 -> 100 and 800 -> 230 (extreme): cuts of 73 and 78 %, 75 and
71 %; slopes after round 150 of 1.5 against 0.2. Random scheduling cannot depend on the data set, so
the paper must have used several airs.

How far channels can be learned depends on how fast they move, which the paper does not say of its
extreme air. So the ages alone are simulated too, with many runs, from still channels to means that
last five rounds, and under jammers: what the printed M-Exp3 reaches, what ours does, and what an
oracle does that knows the means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import xarray as xr

from freshband.experiments import fig3
from freshband.experiments.base import Claim, Piece, Scale, judge, judge_order
from freshband.experiments.fig2a import simulation_piece

__all__ = ["LEARNERS", "MOVING", "TITLE", "claims", "moving", "pieces"]

TITLE: Final = "Cumulative AoI variance over rounds"
# Air of N = 6 channels and M = 4 clients, by how it is called.
MOVING: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "still": ("fig3-extreme", {"hazard": 0.0}),
    "hazard 0.002": ("fig3-extreme", {"hazard": 0.002}),
    "hazard 0.01": ("fig3-extreme", {"hazard": 0.01}),
    "hazard 0.04": ("fig3-extreme", {"hazard": 0.04}),
    "hazard 0.2": ("fig3-extreme", {"hazard": 0.2}),
    "sweeping jammer": ("jammer", {"n_channels": 6, "pattern": "sweep"}),
    "blocking jammer": ("jammer", {"n_channels": 6, "pattern": "block"}),
}
LEARNERS: Final = (
    "random",
    "m-exp3:paper+random",
    "m-exp3:paper+age",
    "m-exp3+age",
    "glr-cucb:fresh",
    "oracle:mean+age",
)
_RUNS: Final = {Scale.quick: 40, Scale.full: 400}
_CUTS: Final = {"piecewise": ("73 to 78 %", 73.0), "extreme": ("71 to 75 %", 71.0)}


def pieces(scale: Scale) -> Sequence[Piece]:
    """Return the runs of Fig. 3, and simulations of the ages alone."""
    simulated = [
        simulation_piece(
            f"moving-{scale.value}-{place}",
            {
                "channels": channels,
                "channel_options": dict(options),
                "policies": list(LEARNERS),
                "clients": 4,
                "rounds": 250,
                "runs": _RUNS[scale],
                "seed": 0,
                "points": 1,
            },
        )
        for place, (channels, options) in enumerate(MOVING.values())
    ]
    return [*simulated, *fig3.pieces(scale)]


def moving(results: Mapping[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    """Return the simulations of the ages alone, by what the air is called."""
    found = {key: result for key, result in results.items() if key.startswith("moving-")}
    return dict(zip(MOVING, found.values(), strict=True))


def claims(results: Mapping[str, xr.Dataset], scale: Scale) -> Sequence[Claim]:
    """Check the cuts of the variance, the slopes, and how accuracy spreads over clients."""
    found = [claim for air, result in moving(results).items() for claim in _learning(air, result)]
    results = {key: result for key, result in results.items() if key.startswith("training-")}
    dataset = fig3.DATASETS[scale][0]  # ages do not depend on the data set
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


def _learning(air: str, result: xr.Dataset) -> list[Claim]:
    """Judge what can be learned on an air: the printed learner, and ours against the oracle."""
    total = {name: result.cumulative_variance.sel(policy=name).values for name in LEARNERS}
    base, best = total["random"], total["oracle:mean+age"]
    gap = base.mean() - best.mean()
    cut = 100 * (1 - total["m-exp3:paper+age"] / base.mean())
    found = [
        judge(
            f"N = 6, M = 4, {air}: cut by M-Exp3 as printed, oldest first",
            "71 to 75 %" if air.startswith("hazard") else "-",
            cut,
            at_least=71.0,
            unit="%",
            why=f"the oracle that knows the means reaches {100 * gap / base.mean():.0f} %",
        )
    ]
    if gap > 0.1 * base.mean():  # there is something to learn
        found.append(
            judge(
                f"N = 6, M = 4, {air}: share of the gap from random to the oracle that ours closes",
                "-",
                100 * (base - total["glr-cucb:fresh"]) / gap,
                at_least=50.0,
                unit="%",
            )
        )
    return found
