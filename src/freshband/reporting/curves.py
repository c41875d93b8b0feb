"""Curves over rounds, with standard-error bands, fit for a paper."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from freshband.errors import FileError, ParameterError

__all__ = ["COLOURS", "draw_curves", "save_figure"]

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
_DASHES = ("-", "--", "-.", ":")
_LABELS = {
    "regret": "AoI regret against mean+age",
    "regret_rotate": "AoI regret against mean+rotate",
    "regret_fixed": "AoI regret against the best fixed set",
    "age": "cumulative AoI, all clients",
    "variance": "cumulative AoI variance",
}


def draw_curves(result: xr.Dataset, measure: str = "regret") -> Figure:
    """Draw a measure over rounds: mean over runs, with a band of one standard error.

    Parameters
    ----------
    result : xarray.Dataset
        From `freshband.simulate` or `freshband.load_result`.
    measure : {"regret", "regret_rotate", "regret_fixed", "age", "variance"}
        Where channels have no means, ``regret`` falls back to ``regret_fixed``.

    Examples
    --------
    >>> import freshband
    >>> result = freshband.simulate("stationary", "random,cucb", rounds=200, runs=3)
    >>> len(draw_curves(result).axes[0].lines)
    2
    """
    if measure not in _LABELS:
        raise ParameterError(f"measure must be one of {sorted(_LABELS)}, got {measure!r}")
    if measure == "regret" and bool(result.regret_curve.isnull().all()):
        measure = "regret_fixed"
    curves = result[f"{measure}_curve"]
    if bool(curves.isnull().all()):
        raise ParameterError(f"measure {measure!r} does not apply to this result")
    config = json.loads(result.attrs["config"])
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
        dash = _DASHES[places[name] // len(COLOURS) % len(_DASHES)]
        axes.plot(rounds, mean, linestyle=dash, linewidth=1.6, label=name, **style)
        if len(values) > 1:
            error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
            axes.fill_between(rounds, mean - error, mean + error, alpha=0.2, linewidth=0, **style)
    axes.set_xlabel("round")
    axes.set_ylabel(_LABELS[measure])
    axes.set_xlim(0, config["rounds"])
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, title="policy, worst first", title_fontsize=8)
    axes.set_title(
        f"{config['channels']}: M = {config['clients']}, {config['runs']} runs, seed "
        f"{config['seed']}" + ("; band: ± one standard error" if config["runs"] > 1 else ""),
        fontsize=9,
        loc="left",
    )
    return figure


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a figure in the format its name asks for, completely or not at all."""
    target = Path(path)
    scratch = target.with_name(f".{os.getpid()}.{target.name}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(scratch, dpi=200)
        scratch.replace(target)
    except ValueError as error:
        raise ParameterError(f"cannot draw {target}: {error}") from None
    except OSError as error:
        raise FileError(f"cannot write {target}: {error.strerror or error}") from None
    finally:
        scratch.unlink(missing_ok=True)
