"""Draws the pictures of experiments, which `freshband.experiments.pictures` describes."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from freshband.experiments.pictures import Panel, Picture, SimulatedCurves
from freshband.reporting._series import Series
from freshband.reporting.curves import COLOURS, _draw_series, _tidy_axes, draw_curves
from freshband.statistics import margin

_LEGEND = {"curves": {"fontsize": 7}, "bars": {"fontsize": 8, "ncols": 2}, "rows": {"fontsize": 7}}


def draw_picture(picture: Picture | SimulatedCurves) -> Figure:
    """Draw a picture of an experiment."""
    if isinstance(picture, SimulatedCurves):
        return draw_curves(picture.result, picture.measure, log=picture.log)
    columns = min(2, len(picture.panels))
    rows = math.ceil(len(picture.panels) / columns)
    default = (9.5, 3.6 * rows) if columns > 1 else (7.0, 4.3)
    figure = Figure(figsize=picture.size or default, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for spare in grid[len(picture.panels) :]:
        spare.remove()
    for axes, panel in zip(grid, picture.panels, strict=False):
        _DRAWN[panel.kind](axes, panel)
        axes.set_title(panel.title, fontsize=9, loc="left")
        axes.set_xlabel(panel.x_label, fontsize=9 if panel.kind == "rows" else None)
        axes.set_ylabel(panel.y_label)
        if panel.percent:
            axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        _tidy_axes(axes)
        axes.legend(frameon=False, **_LEGEND.get(panel.kind, {"fontsize": 8}))
    return figure


def _curves(axes: Axes, panel: Panel) -> None:
    for each in panel.series:
        series = Series(np.asarray(each.x), each.values.T)
        style = {"color": _colour(each.colour), "linestyle": each.line, "linewidth": 1.5}
        _draw_series(axes, series, shares=panel.percent, label=each.label, **style)
        axes.set_xlim(0, each.x[-1])
    if not panel.percent and all((each.values >= 0).all() for each in panel.series):
        axes.set_ylim(bottom=0)


def _points(axes: Axes, panel: Panel) -> None:
    for each in panel.series:
        mean, half = _mean_and_margin(each.values)
        axes.errorbar(
            each.x, mean, half, marker="o", markersize=4, linestyle=each.line, linewidth=1.4,
            elinewidth=0.8, capsize=2, color=_colour(each.colour), label=each.label,
        )  # fmt: skip
    if panel.ticks:
        axes.set_xticks(*zip(*panel.ticks, strict=True))
    axes.axhline(0, color="0.4", linewidth=0.6)


def _bars(axes: Axes, panel: Panel) -> None:
    width = 0.8 / len(panel.series)
    for place, each in enumerate(panel.series):
        mean, half = _mean_and_margin(each.values)
        axes.bar(
            each.x + (place - (len(panel.series) - 1) / 2) * width, mean, width, yerr=half,
            error_kw={"elinewidth": 0.7}, color=_colour(each.colour), label=each.label,
        )  # fmt: skip
    axes.set_xticks(*zip(*panel.ticks, strict=True), fontsize=8)
    if panel.log:
        axes.set_yscale("log")


def _rows(axes: Axes, panel: Panel) -> None:
    for each in panel.series:
        mean, half = _mean_and_margin(each.values)
        axes.errorbar(
            mean, each.x, xerr=half, marker="o", markersize=4, linestyle="", capsize=2,
            color=_colour(each.colour), label=each.label,
        )  # fmt: skip
    axes.axvline(0, color="0.4", linewidth=0.6)
    axes.set_yticks(*zip(*panel.ticks, strict=True), fontsize=8)
    axes.invert_yaxis()


_DRAWN = {"curves": _curves, "points": _points, "bars": _bars, "rows": _rows}


def _colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def _mean_and_margin(
    values: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return means over runs, the last axis, and half their 95 % intervals; NaN is no run."""
    rows = [row[~np.isnan(row)] for row in np.atleast_2d(values)]
    return np.array([row.mean() for row in rows]), np.array([margin(row) for row in rows])
