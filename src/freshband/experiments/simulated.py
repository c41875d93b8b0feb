"""Shared by experiments that only simulate: pieces, regret as points, and its growth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from freshband.experiments.base import Claim, Machine, Piece, judge_order
from freshband.experiments.pictures import Panel, Picture, Series

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["simulation_piece"]


def simulation_piece(key: str, **request: Any) -> Piece:
    """Return a piece that is a simulation; ``request`` are arguments of `freshband.simulate`."""

    def make(machine: Machine) -> xr.Dataset:
        from freshband.simulation.monte_carlo import simulate

        return _thin(simulate(**request, **machine.where))

    return Piece(key, request, make)


def _fig2_piece(key: str, **request: Any) -> Piece:
    """Return a simulation with the common settings of Fig. 2."""
    return simulation_piece(key, channels="fig2", clients=2, rounds=20_000, seed=0, **request)


def _thin(result: xr.Dataset) -> xr.Dataset:
    """Drop the variables that no figure shows, and store curves in single precision."""
    spare = ["age_curve", "variance_curve", "delivered_curve", "regret_fixed_curve"]
    kept = result.drop_vars([*spare, "participation"])
    curves = {name: kept[name].astype(np.float32) for name in kept if str(name).endswith("curve")}
    return kept.assign(curves).assign_attrs(result.attrs)


def _regret_of(results: Sequence[xr.Dataset], policy: str) -> NDArray[np.float64]:
    """Return a policy's regret against the paper's oracle (mean + rotate): (results, runs)."""
    return np.array([result.regret_rotate.sel(policy=policy).values for result in results])


def _judge_growth(
    what: str, x: NDArray[Any], regret: NDArray[np.float64], ends: Sequence[str], unit: str
) -> Claim:
    """Return a claim that regret, shape (x, runs), grows with x, by least squares in each run."""
    centred = x - x.mean()
    slopes = centred @ regret / (centred @ centred)
    why = f"{regret[0].mean():,.0f} at {ends[0]}, {regret[-1].mean():,.0f} at {ends[-1]}"
    return judge_order(what, "grows", slopes, unit=unit, why=why)


def _regret_picture(
    series: Sequence[Series], x_label: str, ticks: Sequence[tuple[float, str]] = ()
) -> Picture:
    """Return the picture of regret in Fig. 2(b) and (c)."""
    runs = series[0].values.shape[1]
    title = f"M = 2, T = 20,000; {runs} runs, 95 % intervals"
    y_label = "AoI regret against the mean+rotate oracle"
    return Picture([Panel("points", series, title, x_label, y_label, ticks)])
