"""A plot of regret with theoretical bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from freshband.reporting.curves import draw_curves
from freshband.theory.overview import BoundEntry

_STYLES: Mapping[tuple[str, str], dict[str, Any]] = {
    ("lower", "corrected"): {"color": "#555555", "linestyle": "--", "linewidth": 1.3},
    ("lower", "literal"): {"color": "#AAAAAA", "linestyle": "--", "linewidth": 0.9},
    ("upper", "corrected"): {"color": "#555555", "linestyle": ":", "linewidth": 1.5},
    ("upper", "literal"): {"color": "#AAAAAA", "linestyle": ":", "linewidth": 1.1},
}
# The line from a name to the end of its curve.
_LEADER = {
    "arrowstyle": "-", "color": "#BBBBBB", "linewidth": 0.6, "relpos": (0, 0.5),
    "shrinkA": 1, "shrinkB": 0,
}  # fmt: skip


def draw_bounds(
    result: xr.Dataset, entries: Sequence[BoundEntry], measure: str = "regret_rotate"
) -> Figure:
    """Draw regret over rounds with bounds, on a logarithmic axis.

    Dashed lines are lower bounds and dotted ones upper bounds; dark ones are corrected, light ones
    as printed. Each point of a bound is for that number of rounds as the horizon. Labels are at the
    ends of the lines.

    Parameters
    ----------
    result : xarray.Dataset
        From `freshband.simulate`.
    entries : sequence of BoundEntry
        From `theory.overview.list_bounds`, with the result's rounds.
    measure : {"regret", "regret_rotate", "regret_fixed"}, default "regret_rotate"
        The default is the regret against an oracle that takes turns, as in the paper.

    Examples
    --------
    >>> import freshband
    >>> from freshband.theory.overview import Air, list_bounds
    >>> result = freshband.simulate("stationary", "random", rounds=300, runs=2)
    >>> entries = list_bounds(2, 5, result["round"].values, 1, Air(0.1, 0.5, 0.6, 0.1))
    >>> len(draw_bounds(result, entries).axes[0].lines) - len(entries)
    1
    """
    figure = draw_curves(result, measure, log=True)
    figure.set_size_inches(9.5, 5.2)
    axes = figure.axes[0]
    rounds = result["round"].values
    ends = []
    for entry in entries:
        value = np.broadcast_to(entry.bound.value, rounds.shape)
        shown = np.where(value > 0, value, np.nan)
        style = _STYLES[entry.bound.kind, entry.variant]
        label = f"{entry.result}, {entry.variant}" + ("" if entry.bound.holds[-1] else " (?)")
        axes.plot(rounds, shown, zorder=1.5, label=label, **style)
        if value[-1] > 0:
            ends.append((float(value[-1]), label))
    largest = max((value for value, _ in ends), default=1.0)
    low, high = axes.get_ylim()
    smallest = min((value for value, _ in ends), default=low)
    bottom = min(low, smallest / 3) if axes.get_yscale() == "log" else low
    axes.set_ylim(bottom, max(high, 2 * largest))
    _write_names(axes, float(rounds[-1]), ends)
    handles, labels = axes.get_legend_handles_labels()
    policies = len(labels) - len(entries)
    axes.legend(handles[:policies], labels[:policies], frameon=False, fontsize=8, loc="upper left")
    note = "dashed: lower bounds, on some air; dotted: upper bounds; light: as printed; (?): "
    figure.text(0.01, 0.005, note + "a condition fails", fontsize=7, color="#555555")
    figure.set_layout_engine(ConstrainedLayoutEngine(rect=(0, 0.03, 1, 0.97)))
    return figure


def _write_names(axes: Axes, end: float, ends: list[tuple[float, str]]) -> None:
    """Write each label beside the end of its line, without overlap."""
    transform = axes.transData + axes.transAxes.inverted()
    place = -1.0
    for value, label in sorted(ends):
        height = float(transform.transform((end, value))[1])
        place = max(height, place + 0.036)
        axes.annotate(
            label, (1.0, height), (1.02, place), "axes fraction", arrowprops=_LEADER,
            annotation_clip=False, fontsize=7, color="#333333", va="center",
        )  # fmt: skip
