"""Fig. 2(b) by its text: regret of GLR-CUCB and ours for 0 to 12 breakpoints, known and not.

The caption under (b) belongs to (c) and the other way round (erratum E19); the text is followed.
Expected: regret grows with the number of breakpoints (literal algorithm against mean + rotate: 440,
1,500, 2,330 at 0, 5, 12), and knowing that number helps. "Known" is the exploration rate that uses
it, `α = 0.05 sqrt(N (C_T + 1) ln T / T)`; "unknown" the printed one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import xarray as xr

from freshband.experiments.base import Claim, Piece, Scale, judge_order
from freshband.experiments.fig2a import simulation_piece

__all__ = ["TITLE", "TOLD", "claims", "counts_of", "pieces"]

TITLE: Final = "GLR-CUCB: regret by number of breakpoints"
TOLD: Final = ("glr-cucb:paper", "glr-cucb:fresh")  # can be told the number; `bayes` finds out
_RUNS: Final = {Scale.quick: 20, Scale.full: 200}
_COUNTS: Final = {Scale.quick: (0, 2, 5, 8, 12), Scale.full: tuple(range(13))}


def pieces(scale: Scale) -> Sequence[Piece]:
    """Return a simulation for each number of breakpoints, with and without knowing it."""
    found = []
    for count in _COUNTS[scale]:
        for known in (False, True):
            options = {"alpha": "besson", "n_segments": count + 1} if known else {}
            names = [*TOLD] if known else [*TOLD, "bayes"]
            request: dict[str, Any] = {
                "channels": "fig2",
                "channel_options": {"n_breakpoints": count},
                "policies": names,
                "policy_options": {name: options for name in names if known},
                "clients": 2,
                "rounds": 20_000,
                "runs": _RUNS[scale],
                "seed": 0,
                "points": 1,
            }
            told = "known" if known else "unknown"
            found.append(simulation_piece(f"breakpoints-{scale.value}-{count:02}-{told}", request))
    return found


def counts_of(results: Mapping[str, xr.Dataset], told: str) -> dict[int, xr.Dataset]:
    """Return the results by number of breakpoints, ``told`` known or unknown."""
    return {
        int(key.split("-")[2]): result
        for key, result in results.items()
        if key.split("-")[3] == told
    }


def claims(results: Mapping[str, xr.Dataset], scale: Scale) -> Sequence[Claim]:
    """Check that regret grows with the breakpoints, and that knowing their number helps."""
    found = []
    unknown, known = counts_of(results, "unknown"), counts_of(results, "known")
    for policy in (*TOLD, "bayes"):
        by_count = {
            count: result.regret_rotate.sel(policy=policy).values
            for count, result in unknown.items()
        }
        counts = np.array(sorted(by_count))
        values = np.array([by_count[count] for count in counts])  # (count, run)
        centred = counts - counts.mean()
        slopes = centred @ values / (centred @ centred)
        found.append(
            judge_order(
                f"{policy}: regret grows with each breakpoint",
                "grows",
                slopes,
                unit="regret",
                why=f"{values[0].mean():,.0f} at {counts[0]}, {values[-1].mean():,.0f} at "
                f"{counts[-1]}",
            )
        )
        if policy not in TOLD:
            continue
        gain = np.mean(
            [
                (unknown[c].regret_rotate - known[c].regret_rotate).sel(policy=policy).values
                for c in unknown
                if c > 0
            ],
            axis=0,
        )
        found.append(
            judge_order(
                f"{policy}: knowing the number of breakpoints helps",
                "helps",
                gain,
                unit="regret",
                why="mean over all numbers of breakpoints",
            )
        )
    return found
