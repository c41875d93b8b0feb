"""The paper's figures, drawn from the files `freshband.experiments` makes.

Files are named by what they show: the captions of Fig. 2(b) and (c) are swapped (erratum E19).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from freshband.experiments import fig2b, fig3, fig4, parts, rules
from freshband.experiments.base import Scale
from freshband.experiments.training import AIRS, gather, settings_of
from freshband.reporting.curves import COLOURS, draw_curves, draw_series, tidy_axes
from freshband.reporting.series import Series
from freshband.statistics import standard_error

__all__ = ["FIGURES", "draw_experiment"]

_Results = Mapping[str, xr.Dataset]
_Place = tuple[str, str]  # data set and air


def draw_experiment(name: str, results: _Results, scale: Scale) -> dict[str, Figure]:
    """Return the figures of an experiment, such as ``"fig2a"``, by their file names without suffix.

    ``results`` are its pieces, from `freshband.experiments.base.load_pieces`.
    """
    return {shown: draw(results, scale) for shown, draw in FIGURES[name].items()}


def _by_policy(results: _Results, scale: Scale) -> Figure:
    (result,) = results.values()
    return draw_curves(result, "regret_rotate", log=True)


def _by_breakpoints(results: _Results, scale: Scale) -> Figure:
    figure = Figure(figsize=(7.0, 4.3), layout="constrained")
    axes = figure.subplots()
    lines = {"unknown": "-", "known": "--"}
    for place, policy in enumerate((*fig2b.TOLD, "bayes")):
        for told in ("unknown", "known") if policy in fig2b.TOLD else ("unknown",):
            by_count = fig2b.counts_of(results, told)
            counts = sorted(by_count)
            values = np.array([by_count[c].regret_rotate.sel(policy=policy).values for c in counts])
            label = f"{policy}, number {told}"
            _points(axes, np.array(counts), values, label, COLOURS[place], lines[told])
    axes.set_xlabel("breakpoints in 20,000 rounds")
    _finish(axes, "AoI regret against the mean+rotate oracle", results)
    return figure


def _by_channel_sets(results: _Results, scale: Scale) -> Figure:
    figure = Figure(figsize=(7.0, 4.3), layout="constrained")
    axes = figure.subplots()
    channels = [int(key.split("-")[3]) for key in results]
    sets = np.array([math.comb(n, 2) for n in channels])
    for place, policy in enumerate(("m-exp3:paper", "m-exp3")):
        values = np.array([r.regret_rotate.sel(policy=policy).values for r in results.values()])
        _points(axes, sets, values, policy, COLOURS[place], "-")
    axes.set_xlabel("channel sets C(N, 2)")
    axes.set_xticks(sets, [f"{c}\nN = {n}" for c, n in zip(sets, channels, strict=True)])
    _finish(axes, "AoI regret against the mean+rotate oracle", results)
    return figure


def _accuracy(results: _Results, scale: Scale) -> Figure:
    figure, panels = _panels(_everywhere(scale))
    for place, axes in panels.items():
        _curves(axes, results, scale, place, fig3.ROLES[place[1]], "accuracy")
        _in_percent(axes)
    return figure


def _variance(results: _Results, scale: Scale) -> Figure:
    figure, panels = _panels(_everywhere(scale))
    for place, axes in panels.items():
        _curves(axes, results, scale, place, fig3.ROLES[place[1]], "cumulative_variance")
        axes.set_ylabel("cumulative AoI variance")
        axes.set_ylim(bottom=0)
    return figure


def _parts(results: _Results, scale: Scale) -> Figure:
    figure, panels = _panels(parts.PLACES[scale])
    for place, axes in panels.items():
        names, learner = parts.policies(*place), fig3.ROLES[place[1]]["learner, adaptive matching"]
        colours = {"random": COLOURS[0], learner: COLOURS[2], fig3.OURS: COLOURS[3]}  # as in Fig. 3
        styles = [(colours[name.partition("@")[0]], "-" if "@" in name else ":") for name in names]
        _curves(
            axes, results, scale, place, dict(zip(names, names, strict=True)), "accuracy", styles
        )
        _in_percent(axes)
    return figure


def _rules(results: _Results, scale: Scale) -> Figure:
    figure, panels = _panels([(rules.DATASET[scale], air) for air in AIRS])
    for place, axes in panels.items():
        found = rules.late(results, scale, place[1])
        paper = found.pop("")
        gains, at = np.array([*found.values()]) - paper, np.arange(len(found))
        error = standard_error(gains, axis=1)
        rivals = np.isin(list(found), rules.RIVALS[scale])
        for which, colour, label in (
            (~rivals, COLOURS[0], "beyond the paper's round"),
            (rivals, COLOURS[1], "as much work, otherwise"),
        ):
            axes.errorbar(
                gains.mean(axis=1)[which], at[which], xerr=error[which], marker="o", markersize=4,
                linestyle="", capsize=2, color=colour, label=label,
            )  # fmt: skip
        axes.legend(frameon=False, fontsize=7)
        axes.axvline(0, color="0.4", linewidth=0.6)
        axes.set_yticks(at, list(found), fontsize=8)
        axes.invert_yaxis()
        runs = f"{gains.shape[1]} runs, paired"
        axes.set_xlabel(
            f"points beyond random's {paper.mean():.1f} % in the last 25 rounds", fontsize=9
        )
        axes.set_title(f"{', '.join(place)}: {runs}", fontsize=9, loc="left")
        tidy_axes(axes)
    return figure


def _in_percent(axes: Axes) -> None:
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_ylabel("test accuracy")


def _by_air(results: _Results, scale: Scale) -> Figure:
    figure = Figure(figsize=(9.5, 4.3), layout="constrained")
    airs = fig4.moving(results)
    axes = figure.subplots()
    roles = list(next(iter(fig4.AGES.values())).policies)
    width = 0.8 / len(roles)
    for j, role in enumerate(roles):
        values = np.array(
            [
                result.cumulative_variance.sel(policy=fig4.AGES[name].policies[role]).values
                for name, result in airs.items()
            ]
        )
        axes.bar(
            np.arange(len(airs)) + (j - (len(roles) - 1) / 2) * width, values.mean(axis=1), width,
            yerr=standard_error(values, axis=1), error_kw={"elinewidth": 0.7}, color=COLOURS[j],
            label=role,
        )  # fmt: skip
    names = [f"{name.replace(' ', chr(10))}\nM = {fig4.AGES[name].clients}" for name in airs]
    axes.set_xticks(np.arange(len(airs)), names, fontsize=8)
    axes.set_ylabel("cumulative AoI variance after 250 rounds")
    runs = next(iter(airs.values())).sizes["run"]
    axes.set_title(f"{runs} runs, ± one standard error", fontsize=9, loc="left")
    tidy_axes(axes)
    axes.legend(frameon=False, fontsize=8, ncols=2)
    return figure


def _everywhere(scale: Scale) -> list[_Place]:
    return [(dataset, air) for dataset in fig3.DATASETS[scale] for air in AIRS]


def _panels(places: Sequence[_Place]) -> tuple[Figure, dict[_Place, Axes]]:
    """Return a figure with two panels per row, and the panel of each place."""
    rows = math.ceil(len(places) / 2)
    figure = Figure(figsize=(9.5, 3.6 * rows), layout="constrained")
    grid = figure.subplots(rows, 2, squeeze=False).ravel()
    for spare in grid[len(places) :]:
        spare.remove()
    return figure, dict(zip(places, grid, strict=False))


def _curves(
    axes: Axes,
    results: _Results,
    scale: Scale,
    place: _Place,
    roles: Mapping[str, str],
    measure: str,
    styles: Sequence[tuple[str, str]] | None = None,
) -> None:
    """Draw the mean over runs of each role, with a band of one standard error."""
    styles = styles or [(colour, "-") for colour in COLOURS]
    found = gather(results, scale, place, roles, measure)
    for (colour, line), (role, values) in zip(styles, found.items(), strict=False):
        series = Series(1 + np.arange(values.shape[1]), values)
        label = role if role == roles[role] else f"{role}: {roles[role]}"
        draw_series(axes, series, color=colour, linestyle=line, linewidth=1.5, label=label)
        axes.set_xlim(0, values.shape[1])
    settings = settings_of(*place)
    size = f"M = {settings.clients}, N = {settings.build_channels().n_channels}"
    axes.set_title(f"{', '.join(place)}: {size}", fontsize=9, loc="left")
    axes.set_xlabel("round")
    tidy_axes(axes)
    axes.legend(frameon=False, fontsize=7)


def _points(
    axes: Axes, x: NDArray[Any], values: NDArray[np.float64], label: str, colour: str, line: str
) -> None:
    """Draw means over runs, the last axis, with standard errors."""
    axes.errorbar(
        x, values.mean(axis=1), standard_error(values, axis=1), marker="o", markersize=4,
        linestyle=line, linewidth=1.4, elinewidth=0.8, capsize=2, color=colour, label=label,
    )  # fmt: skip


def _finish(axes: Axes, measure: str, results: _Results) -> None:
    runs = next(iter(results.values())).sizes["run"]
    axes.set_ylabel(measure)
    axes.axhline(0, color="0.4", linewidth=0.6)
    axes.set_title(f"M = 2, T = 20,000; {runs} runs, ± one standard error", fontsize=9, loc="left")
    tidy_axes(axes)
    axes.legend(frameon=False, fontsize=8)


FIGURES: Mapping[str, Mapping[str, Callable[[_Results, Scale], Figure]]] = {
    "fig2a": {"regret-by-policy": _by_policy},
    "fig2b": {"regret-by-breakpoints": _by_breakpoints},
    "fig2c": {"regret-by-channel-sets": _by_channel_sets},
    "fig3": {"accuracy": _accuracy},
    "fig4": {"age-variance": _variance, "age-variance-by-air": _by_air},
    "rules": {"rules-for-lost-updates": _rules},
    "parts": {"scheduling-and-rule": _parts},
}
