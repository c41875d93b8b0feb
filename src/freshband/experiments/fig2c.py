"""Fig. 2(c) by its text: regret of M-Exp3 as the number of channel sets C(N, 2) grows.

The caption under (c) belongs to (b) and the other way round (erratum E19); the text is followed.
Stationary channels, M = 2, N = 3 to 8: C(N, 2) = 3 to 28. Expected for the printed γ = 0.5:
growing, then flat (5,600, 9,200, 10,500, 11,100, 11,000, 11,800).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import xarray as xr

from freshband.experiments.base import Claim, Piece, Scale, judge_order
from freshband.experiments.fig2a import simulation_piece

__all__ = ["TITLE", "claims", "pieces"]

TITLE: Final = "M-Exp3: regret by number of channel sets"
_RUNS: Final = {Scale.quick: 20, Scale.full: 200}
_CHANNELS: Final = {Scale.quick: (3, 4, 5, 6, 8), Scale.full: (3, 4, 5, 6, 7, 8)}


def pieces(scale: Scale) -> Sequence[Piece]:
    """Return a simulation for each number of channels."""
    found = []
    for n_channels in _CHANNELS[scale]:
        request: dict[str, Any] = {
            "channels": "fig2",
            "channel_options": {"n_channels": n_channels, "n_breakpoints": 0},
            "policies": ["m-exp3:paper", "m-exp3"],
            "clients": 2,
            "rounds": 20_000,
            "runs": _RUNS[scale],
            "seed": 0,
            "points": 1,
        }
        found.append(simulation_piece(f"channel-sets-{scale.value}-{n_channels}", request))
    return found


def claims(results: Mapping[str, xr.Dataset], scale: Scale) -> Sequence[Claim]:
    """Check that regret grows with the logarithm of the number of sets."""
    channels = np.array([int(key.split("-")[3]) for key in results])
    sets = np.log([math.comb(n, 2) for n in channels])
    found = []
    for policy in ("m-exp3:paper", "m-exp3"):
        values = np.array(
            [result.regret_rotate.sel(policy=policy).values for result in results.values()]
        )
        centred = sets - sets.mean()
        slopes = centred @ values / (centred @ centred)
        found.append(
            judge_order(
                f"{policy}: regret grows with the number of channel sets",
                "grows",
                slopes,
                unit="regret a factor e",
                why=f"{values[0].mean():,.0f} at N = {channels[0]}, {values[-1].mean():,.0f} at "
                f"N = {channels[-1]}",
            )
        )
    return found
