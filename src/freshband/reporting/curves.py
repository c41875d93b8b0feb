"""Curves over rounds, with standard-error bands, fit for a paper."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from freshband.errors import ParameterError, shown
from freshband.files import check_writable, replacing
from freshband.simulation.result import read_config

__all__ = ["COLOURS", "DASHES", "check_figure", "check_measure", "draw_curves", "save_figure"]

COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#8C6BB1",
)  # Okabe and Ito's, safe for colour-blind readers
_FORMATS = ("png", "pdf", "svg", "eps", "jpg", "tif", "webp")
DASHES = ("-", "--", "-.", ":")
_LABELS = {
    "regret": "AoI regret against the mean+age oracle",
    "regret_rotate": "AoI regret against the mean+rotate oracle",
    "regret_fixed": "AoI regret against the best fixed set",
    "age": "cumulative AoI, all clients",
    "variance": "cumulative AoI variance",
}


def draw_curves(result: xr.Dataset, measure: str = "regret", *, log: bool = False) -> Figure:
    """Draw a measure over rounds: mean over runs, with a band of one standard error.

    Parameters
    ----------
    result : xarray.Dataset
        From `freshband.simulate` or `freshband.load_result`.
    measure : {"regret", "regret_rotate", "regret_fixed", "age", "variance"}
        Where channels have no means, ``regret`` falls back to ``regret_fixed``.
    log : bool, default False
        A logarithmic axis, for policies that differ by orders of magnitude.

    Examples
    --------
    >>> import freshband
    >>> result = freshband.simulate("stationary", "random,cucb", rounds=200, runs=3)
    >>> len(draw_curves(result).axes[0].lines)
    2
    """
    config = read_config(result)
    measure = check_measure(measure, has_means=not bool(result.regret_curve.isnull().all()))
    if f"{measure}_curve" not in result:
        raise ParameterError(
            f"measure must be one the result has a curve of, got {measure!r}: files of freshband "
            "reproduce keep what its figures show, and freshband simulate --like FILE computes the "
            "rest again"
        )
    curves = result[f"{measure}_curve"]
    figure = Figure(figsize=(7.0, 4.3), layout="constrained")
    axes = figure.subplots()
    rounds = np.concatenate([[0], result["round"].values])
    ends = curves.mean("run").isel(round=-1)
    order = [str(name) for name in ends.sortby(ends, ascending=False).policy.values]
    places = {str(name): place for place, name in enumerate(result.policy.values)}
    for name in order:
        values = curves.sel(policy=name).values
        values = np.concatenate([np.zeros((len(values), 1)), values], axis=1)
        style: dict[str, Any] = {"color": COLOURS[places[name] % len(COLOURS)]}
        mean = values.mean(axis=0)
        dash = DASHES[places[name] // len(COLOURS) % len(DASHES)]
        axes.plot(rounds, mean, linestyle=dash, linewidth=1.6, label=name, **style)
        if len(values) > 1:
            error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
            axes.fill_between(rounds, mean - error, mean + error, alpha=0.2, linewidth=0, **style)
    axes.set_xlabel("round")
    axes.set_ylabel(_LABELS[measure])
    axes.set_xlim(0, config["rounds"])
    if log:
        means = curves.mean("run").values
        largest = float(np.abs(means).max()) or 1.0
        if means.min() < 0:  # regrets can be: linear near 0
            axes.set_yscale("symlog", linthresh=largest / 1000)
        else:
            axes.set_yscale("log")
            axes.set_ylim(bottom=largest / 2000)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(
        frameon=False,
        fontsize=8,
        ncols=2 if log else 1,
        title="policy, worst first",
        title_fontsize=8,
    )
    several = config["runs"] > 1
    axes.set_title(
        f"{config['channels']}: M = {config['clients']}, {config['runs']} run"
        f"{'s' if several else ''}, seed {config['seed']}"
        + ("; band: ± one standard error" if several else ""),
        fontsize=9,
        loc="left",
    )
    return figure


def check_measure(measure: str, *, has_means: bool) -> str:
    """Return the measure to draw where channels have means, or have none.

    Raises
    ------
    ParameterError
        If nobody knows this measure, or it is not computed for such channels.
    """
    if not isinstance(measure, str) or measure not in _LABELS:
        raise ParameterError(f"measure must be one of {', '.join(_LABELS)}, got {shown(measure)}")
    if measure == "regret" and not has_means:
        return "regret_fixed"
    if measure == ("regret_fixed" if has_means else "regret_rotate"):
        have = "have means" if has_means else "have no means"
        raise ParameterError(f"measure must not be {measure!r} for channels that {have}")
    return measure


def check_figure(path: str | os.PathLike[str]) -> Path:
    """Return the path if a figure can be written there, or raise before anything is drawn."""
    target = check_writable(path)
    if target.suffix[1:].lower() not in _FORMATS:
        raise ParameterError(
            f"the name of a picture must end in one of {', '.join(_FORMATS)}, got {target.name!r}"
        )
    return target


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a figure in the format its name asks for, completely or not at all."""
    with replacing(check_figure(path)) as scratch:
        figure.savefig(scratch, dpi=200)
