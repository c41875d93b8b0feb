"""Fig. 2(a): regret of five policies, as printed, and of ours beside them.

N = 5 channels, M = 2 clients, T = 20,000 rounds, 5 breakpoints, γ = 0.5, δ = 0.001,
α = 0.05 sqrt(ln T / T). The text gives orderings only. Expected: random > M-Exp3 > GLR-CUCB >
GLR-CUCB + AA reproduces; "M-Exp3 + AA below M-Exp3" and "M-Exp3 is sub-linear" do not (errata E12
and E16). Means are U[0.1, 0.9] and breakpoints equally spaced, which the paper leaves open (E20).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import xarray as xr

from freshband.experiments.base import Claim, Piece, Scale, judge_order
from freshband.simulation.monte_carlo import simulate
from freshband.simulation.result import load_result, save_result

__all__ = ["OURS", "PRINTED", "TITLE", "claims", "pieces"]

TITLE: Final = "Regret of the paper's policies and of ours"
PRINTED: Final = (
    "random",
    "m-exp3:paper",
    "m-exp3:paper+aa",
    "glr-cucb:paper",
    "glr-cucb:paper+aa",
)
OURS: Final = ("m-exp3", "glr-cucb", "glr-cucb:fresh", "bayes")
_RUNS: Final = {Scale.quick: 20, Scale.full: 200}


def pieces(scale: Scale) -> Sequence[Piece]:
    """Return the one simulation behind the figure."""
    request: dict[str, Any] = {
        "channels": "fig2",
        "policies": [*PRINTED, *OURS],
        "clients": 2,
        "rounds": 20_000,
        "runs": _RUNS[scale],
        "seed": 0,
        "points": 200 if scale is Scale.quick else 60,
    }
    return [simulation_piece(f"policies-{scale.value}", request)]


def simulation_piece(key: str, request: Mapping[str, Any]) -> Piece:
    """Return a piece that is a simulation."""
    return Piece(
        key=key,
        config=request,
        make=lambda machine: _thin(
            simulate(
                **request,
                backend=machine.backend,
                address=machine.address,
                progress=machine.progress,
            )
        ),
        save=save_result,
        load=load_result,
    )


def _thin(result: xr.Dataset) -> xr.Dataset:
    """Leave out what no figure shows, and half of the digits of curves."""
    spare = ["age_curve", "variance_curve", "delivered_curve", "regret_fixed_curve"]
    kept = result.drop_vars([*spare, "participation"])
    curves = {name: kept[name].astype(np.float32) for name in kept if str(name).endswith("curve")}
    return kept.assign(curves).assign_attrs(result.attrs)


def claims(results: Mapping[str, xr.Dataset], scale: Scale) -> Sequence[Claim]:
    """Check the orderings, run by run, against the paper's oracle (mean + rotate)."""
    (result,) = results.values()
    regret = result.regret_rotate
    found = []
    for worse, better in (
        ("random", "m-exp3:paper"),
        ("m-exp3:paper", "glr-cucb:paper"),
        ("glr-cucb:paper", "glr-cucb:paper+aa"),
        ("m-exp3:paper", "m-exp3:paper+aa"),
    ):
        difference = (regret.sel(policy=worse) - regret.sel(policy=better)).values
        why = ""
        if better == "m-exp3:paper+aa":
            why = (
                "lifetime means guide the jump, and channels change: the best of the past is not "
                "the best now (E16); on stationary channels it helps"
            )
        found.append(
            judge_order(
                f"{better} below {worse}",
                "below",
                difference,
                unit="regret",
                why=why,
            )
        )
    found.append(_growth(result))
    for ours, printed in (
        ("glr-cucb", "glr-cucb:paper"),
        ("glr-cucb:fresh", "glr-cucb:paper+aa"),
        ("bayes", "glr-cucb:paper+aa"),
    ):
        ratio = (
            result.regret.sel(policy=printed).mean() / result.regret.sel(policy=ours).mean()
        ).item()
        difference = (result.regret.sel(policy=printed) - result.regret.sel(policy=ours)).values
        found.append(
            judge_order(
                f"ours, {ours}, below {printed} against the mean + age oracle",
                "-",
                difference,
                unit="regret",
                why=f"{ratio:.1f} times less",
            )
        )
    return found


def _growth(result: xr.Dataset) -> Claim:
    """Compare the regret of M-Exp3 in the last two quarters: sub-linear means falling."""
    curve = result.regret_rotate_curve.sel(policy="m-exp3:paper").values
    rounds = result["round"].values
    marks = [int(np.searchsorted(rounds, share * rounds[-1])) for share in (0.5, 0.75, 1.0)]
    third, fourth = curve[:, marks[1]] - curve[:, marks[0]], curve[:, marks[2]] - curve[:, marks[1]]
    return judge_order(
        "M-Exp3 sub-linear: regret of the third quarter beyond that of the last",
        "positive",
        third - fourth,
        unit="regret",
        why="with γ = 0.5 half of all rounds are drawn at random for ever: linear (E12)",
    )
