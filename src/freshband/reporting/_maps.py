"""Maps of rows over columns in colour, drawn for a paper."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray


def paint_map(
    axes: Axes, edges: NDArray[Any], values: NDArray[Any], *, ruled: tuple[bool, bool], **look: Any
) -> QuadMesh:
    """Paint values of shape (columns, rows), the first row on top.

    ``edges`` bound the columns; ``ruled`` says whether white lines separate columns, and rows.
    """
    rows = np.arange(values.shape[1] + 1) - 0.5
    painted = axes.pcolormesh(edges, rows, values.T, rasterized=True, **look)
    if ruled[0]:
        axes.vlines(edges[1:-1], rows[0], rows[-1], color="white", linewidth=1.2)
    if ruled[1]:
        axes.hlines(rows[1:-1], edges[0], edges[-1], color="white", linewidth=1.2)
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(rows[-1], rows[0])
    axes.tick_params(length=3, labelsize="small")
    axes.spines[:].set_visible(False)
    return painted


def count_along(axis: Axis, ticks: int) -> None:
    """Limit an axis to about this number of ticks, all of them whole numbers."""
    axis.set_major_locator(MaxNLocator(nbins=ticks, integer=True, min_n_ticks=1))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def add_color_bar(figure: Figure, painted: QuadMesh, label: str, **place: Any) -> Axis:
    """Add the scale beside a map, and return its axis."""
    bar = figure.colorbar(painted, pad=0.015, **place)
    bar.set_label(label, size="small")
    bar.ax.tick_params(labelsize="small", length=3)
    bar.outline.set_visible(False)
    return bar.ax.yaxis
