"""Fig. 4: cumulative AoI variance over rounds, from the very runs of Fig. 3.

`Σ_t V_t / M` (erratum E18). The paper reads 480 -> 130 and 360 -> 80 (piecewise, random against
adaptive matching, two data sets), 400 -> 100 and 800 -> 230 (extreme): cuts of 73 and 78 %, 75 and
71 %; slopes after round 150 of 1.5 against 0.2. Random scheduling cannot depend on the data set, so
the paper must have used several airs.

How far channels can be learned depends on how fast they move, which the paper does not say of its
extreme air. So the ages alone are simulated too, with many runs: on the piecewise air, and with six
channels from still ones to means that last five rounds, and under jammers. What the printed learner
reaches is shown, what ours does, and what an oracle does that knows the means.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from freshband.experiments import fig3
from freshband.experiments.base import Claim, Piece, Scale, judge, judge_order
from freshband.experiments.fig2a import simulation_piece
from freshband.experiments.training import ROUNDS, gather

__all__ = ["AGES", "ORACLE", "OURS", "TITLE", "Ages", "claims", "moving", "pieces"]

TITLE: Final = "Cumulative AoI variance over rounds"


@dataclasses.dataclass(frozen=True)
class Ages:
    """An air on which ages alone are simulated, and the printed learner for it."""

    channels: str
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    clients: int = 4
    printed: str = "m-exp3:paper"
    corrected: str = "m-exp3"

    @property
    def policies(self) -> dict[str, str]:
        """What is played on it, by what it stands for."""
        return {
            "random": "random",
            "learner as printed, random matching": f"{self.printed}+random",
            "learner as printed, oldest first": f"{self.printed}+age",
            "learner corrected": self.corrected,
            "glr-cucb:fresh": "glr-cucb:fresh",
            f"ours: {OURS}": OURS,
            "oracle that knows the means": ORACLE,
        }


OURS: Final = "bayes"
ORACLE: Final = "oracle:mean+age"
AGES: Final[Mapping[str, Ages]] = {
    "piecewise": Ages("fig3-piecewise", clients=20, printed="glr-cucb:paper", corrected="glr-cucb"),
    "still": Ages("fig3-extreme", {"hazard": 0.0}),
    "hazard 0.002": Ages("fig3-extreme", {"hazard": 0.002}),
    "hazard 0.01": Ages("fig3-extreme", {"hazard": 0.01}),
    "hazard 0.04": Ages("fig3-extreme", {"hazard": 0.04}),
    "hazard 0.2": Ages("fig3-extreme", {"hazard": 0.2}),
    "sweeping jammer": Ages("jammer", {"n_channels": 6, "pattern": "sweep"}),
    "blocking jammer": Ages("jammer", {"n_channels": 6, "pattern": "block"}),
}
_RUNS: Final = {Scale.quick: 40, Scale.full: 400}
_PAPER: Final = {"fig3-piecewise": ("73 to 78 %", 73.0), "fig3-extreme": ("71 to 75 %", 71.0)}


def pieces(scale: Scale) -> Sequence[Piece]:
    """Return the runs of Fig. 3, and simulations of the ages alone."""
    simulated = [
        simulation_piece(
            f"moving-{scale.value}-{place}",
            {
                "channels": air.channels,
                "channel_options": dict(air.options),
                "policies": list(air.policies.values()),
                "clients": air.clients,
                "rounds": ROUNDS,
                "runs": _RUNS[scale],
                "seed": 0,
                "points": 1,
            },
        )
        for place, air in enumerate(AGES.values())
    ]
    return [*simulated, *fig3.pieces(scale)]


def moving(results: Mapping[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    """Return the simulations of the ages alone, by what the air is called."""
    found = {key: result for key, result in results.items() if key.startswith("moving-")}
    return dict(zip(AGES, found.values(), strict=True))


def claims(results: Mapping[str, xr.Dataset], scale: Scale) -> Sequence[Claim]:
    """Check the cuts of the variance, the slopes, and how accuracy spreads over clients."""
    found = [claim for air, result in moving(results).items() for claim in _learning(air, result)]
    dataset = fig3.DATASETS[scale][0]  # ages do not depend on the data set
    for air, roles in fig3.ROLES.items():
        paper, bound = _PAPER[f"fig3-{air}"]
        total = gather(results, scale, (dataset, air), roles, "cumulative_variance")
        spread = gather(results, scale, (dataset, air), roles, "accuracy_spread")
        base, rise = total["random"][:, -1], total["random"][:, -1] - total["random"][:, 149]
        for role in ("learner, adaptive matching", "ours"):
            last, slope = total[role][:, -1], total[role][:, -1] - total[role][:, 149]
            found.append(
                judge(
                    f"{air}: cut of the cumulative variance against random, {role}",
                    paper,
                    100 * _ratio(base - last, base),
                    at_least=bound,
                    unit="%",
                    why=f"{base.mean():.0f} -> {last.mean():.0f}",
                )
            )
            found.append(
                judge(
                    f"{air}: slope after round 150 over random's, {role}",
                    "0.2 / 1.5",
                    _ratio(slope, rise),
                    at_most=0.2 / 1.5,
                    unit="ratio",
                    why=f"{slope.mean() / 100:.2f} against {rise.mean() / 100:.2f} a round",
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


def _learning(name: str, result: xr.Dataset) -> list[Claim]:
    """Judge what can be learned on an air: the printed learner, and ours against the oracle."""
    air = AGES[name]
    total = {
        policy: result.cumulative_variance.sel(policy=policy).values
        for policy in air.policies.values()
    }
    base, best = total["random"], total[ORACLE]
    cuts = {policy: 100 * _ratio(base - values, base) for policy, values in total.items()}
    knowing = f"the oracle that knows the means cuts {cuts[ORACLE].mean():.0f} %"
    printed = f"{air.printed}+age"
    found = []
    if air.channels in _PAPER:
        paper, bound = _PAPER[air.channels]
        for what, policy in ((air.printed, printed), (f"ours, {OURS}", OURS)):
            found.append(
                judge(
                    f"{name}, ages alone: cut by {what}, oldest first",
                    paper,
                    cuts[policy],
                    at_least=bound,
                    unit="%",
                    why=knowing,
                )
            )
    if cuts[ORACLE].mean() > 10:  # there is something to learn
        gap = base - best
        theirs = 100 * _ratio(base - total[printed], gap).mean()
        found.append(
            judge(
                f"{name}, ages alone: ours closes at least half of the gap, random to oracle",
                "-",
                100 * _ratio(base - total[OURS], gap),
                at_least=50.0,
                unit="%",
                why=f"{air.printed}, oldest first: {theirs:.0f} %",
            )
        )
    return found


def _ratio(above: NDArray[np.float64], below: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return values by run whose mean is the ratio of means, with its standard error."""
    ratio = above.mean() / below.mean()
    linearised: NDArray[np.float64] = ratio + (above - ratio * below) / below.mean()
    return linearised
