"""Curves over rounds with bands of 95 % intervals, drawn for a paper."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from freshband._files import check_writable, replacing
from freshband.errors import ParameterError, shown
from freshband.reporting._fleet import describe_fleet
from freshband.reporting._numbers import counted
from freshband.reporting._series import Series, over_policies
from freshband.simulation.result import _read_config
from freshband.statistics import margin

COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6BB1",
)  # Okabe and Ito's, safe for colour-blind readers  # fmt: skip
_DASHES = ("-", "--", "-.", ":")
_FORMATS = ("png", "pdf", "svg", "eps", "jpg", "tif", "webp")
_LABELS = {
    "regret": "AoI regret against the mean+age oracle",
    "regret_rotate": "AoI regret against the mean+rotate oracle",
    "regret_fixed": "AoI regret against the best fixed set",
    "age": "cumulative AoI, all clients",
    "variance": "cumulative AoI variance",
}


def draw_curves(result: xr.Dataset, measure: str = "regret", *, log: bool = False) -> Figure:
    """Draw a measure over rounds: the mean over runs, with its 95 % interval as a band.

    Parameters
    ----------
    result : xarray.Dataset
        From `freshband.simulate` or `freshband.load_result`.
    measure : {"regret", "regret_rotate", "regret_fixed", "age", "variance"}
        Where channels have no means, ``regret`` falls back to ``regret_fixed``.
    log : bool, default False
        Whether the axis is logarithmic, for policies that differ by orders of magnitude.

    Examples
    --------
    >>> import freshband
    >>> result = freshband.simulate("stationary", "random,cucb", rounds=200, runs=3)
    >>> len(draw_curves(result).axes[0].lines)
    2
    """
    config = _read_config(result)
    measure = _check_measure(
        measure,
        has_means=not bool(result.regret_curve.isnull().all()),
        rotates="regret_rotate" not in result or not bool(result.regret_rotate.isnull().all()),
    )
    if f"{measure}_curve" not in result:
        raise ParameterError(
            f"measure must be one of the result's curves, got {measure!r}: files of freshband "
            "reproduce hold what its figures show; freshband simulate --like FILE computes the "
            "rest again"
        )
    curves = result[f"{measure}_curve"]
    figure = Figure(figsize=(7.0, 4.3), layout="constrained")
    axes = figure.subplots()
    ends = curves.mean("run").isel(round=-1)
    series, styles = over_policies(curves, from_zero=True), _styles_of(result.policy.values)
    for name in ends.sortby(ends, ascending=False).policy.values:
        _draw_series(axes, series[str(name)], label=str(name), **styles[str(name)])
    axes.set_xlabel("round")
    axes.set_ylabel(_LABELS[measure])
    axes.set_xlim(0, config["rounds"])
    if log:
        means = curves.mean("run").values
        largest = float(np.abs(means).max()) or 1.0
        if means.min() < 0:  # negative regrets: linear near 0
            axes.set_yscale("symlog", linthresh=largest / 1000)
        else:
            axes.set_yscale("log")
            axes.set_ylim(bottom=largest / 2000)
    _tidy_axes(axes)
    columns = 2 if log else 1
    heading = "policy, worst first"
    axes.legend(frameon=False, fontsize=8, ncols=columns, title=heading, title_fontsize=8)
    runs = counted(config["runs"], "run")
    title = f"{config['channels']}: M = {config['clients']}, {runs}, seed {config['seed']}"
    band = "; band: 95 % interval of the mean" if config["runs"] > 1 else ""
    if fleet := describe_fleet(config):
        band += f"\nfleet: {fleet}"
    axes.set_title(title + band, fontsize=9, loc="left")
    return figure


def _styles_of(names: Iterable[Any]) -> dict[str, dict[str, Any]]:
    """Return a colour for each name; once all colours are used, the dashes change."""
    return {
        str(name): {
            "color": COLOURS[place % len(COLOURS)],
            "linestyle": _DASHES[place // len(COLOURS) % len(_DASHES)],
        }
        for place, name in enumerate(names)
    }


def _draw_series(axes: Axes, series: Series, *, shares: bool = False, **style: Any) -> None:
    """Draw the mean over runs with its 95 % interval; a single run has no band.

    An interval of few runs may reach beyond 0 and 100 %, where no share can be: it ends there.
    """
    x, mean, half = series.summarise(margin)
    axes.plot(x, mean, **{"linewidth": 1.6, **style})
    if len(series.values) > 1:
        band = np.array([mean - half, mean + half])
        low, high = band.clip(0, 1) if shares else band
        axes.fill_between(x, low, high, alpha=0.2, linewidth=0, color=style["color"])


def _tidy_axes(axes: Axes) -> None:
    """Draw a light grid below the curves, and no frame above and on the right."""
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _check_measure(measure: str, *, has_means: bool, rotates: bool = True) -> str:
    """Return the measure to draw, or raise `ParameterError`.

    ``has_means`` says whether channels have means, ``rotates`` whether clients can take turns on
    the best channels, as they can in the paper's problem only.
    """
    if not isinstance(measure, str) or measure not in _LABELS:
        raise ParameterError(f"measure must be one of {', '.join(_LABELS)}, got {shown(measure)}")
    if measure == "regret" and not has_means:
        return "regret_fixed"
    if measure == ("regret_fixed" if has_means else "regret_rotate"):
        have = "have means" if has_means else "have no means"
        raise ParameterError(f"measure must not be {measure!r} for channels that {have}")
    if measure == "regret_rotate" and not rotates:
        raise ParameterError(
            "measure must not be 'regret_rotate' for a fleet beyond the paper's problem: use "
            "'regret'"
        )
    return measure


def _check_figure(path: str | os.PathLike[str]) -> Path:
    """Return the path if a figure can be written there, or raise before anything is drawn."""
    target = check_writable(path)
    if target.suffix[1:].lower() not in _FORMATS:
        raise ParameterError(
            f"the name of a picture must end in one of {', '.join(_FORMATS)}, got {target.name!r}"
        )
    return target


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a figure in the format given by its file name, completely or not at all."""
    with replacing(_check_figure(path)) as scratch:
        figure.savefig(scratch, dpi=200)
