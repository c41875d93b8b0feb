"""Pictures of experiments as data; `freshband.reporting._figures` draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Panel", "Picture", "Series", "SimulatedCurves"]


@dataclass(frozen=True)
class Series:
    """Values at positions x, one row per position and one column per run.

    Means over runs are drawn with 95 % intervals; NaN is no run. ``colour`` is an index into the
    palette, ``line`` a line style of Matplotlib.
    """

    label: str
    x: NDArray[Any]
    values: NDArray[np.float64]
    colour: int = 0
    line: str = "-"


@dataclass(frozen=True)
class Panel:
    """One pair of axes: lines with bands, points on lines, bars side by side, or named rows.

    ``ticks`` are named positions, on the y axis for ``rows``, otherwise on the x axis. With
    ``percent`` the y axis shows percentages, with ``log`` that of bars is logarithmic.
    """

    kind: Literal["curves", "points", "bars", "rows"]
    series: Sequence[Series]
    title: str = ""
    x_label: str = ""
    y_label: str = ""
    ticks: Sequence[tuple[float, str]] = ()
    percent: bool = False
    log: bool = False


@dataclass(frozen=True)
class Picture:
    """Panels, two in a row; ``size`` in inches replaces the default size."""

    panels: Sequence[Panel]
    size: tuple[float, float] | None = None


@dataclass(frozen=True)
class SimulatedCurves:
    """The curves of a simulation, as `freshband.reporting.curves.draw_curves` draws them."""

    result: xr.Dataset
    measure: str
    log: bool = False
