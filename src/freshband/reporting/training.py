"""Pictures of training: a single run, or several policies side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from freshband.federated.comparison import _read_comparison
from freshband.federated.result import _read_settings, counted_ages
from freshband.federated.settings import Training
from freshband.reporting._maps import add_color_bar, count_along, paint_map
from freshband.reporting._series import over_policies, rank_clients
from freshband.reporting.curves import COLOURS, _draw_series, _styles_of, _tidy_axes

_MARKED = 40  # up to this number of alarms each is marked


def draw_training(result: xr.Dataset) -> Figure:
    """Draw one run: accuracy, every client's age, cumulative age variance and participation.

    Parameters
    ----------
    result : xarray.Dataset
        From `freshband.federated.result.collect_records` or ``load_training``.
    """
    settings = _read_settings(result)
    figure = Figure(figsize=(9.0, 5.6), layout="constrained")
    accuracy, ages, variance, participation = figure.subplots(2, 2).flat
    rounds = result["round"].values
    looks = result.accuracy.notnull().values
    _spread_over_clients(accuracy, rounds[looks], result.client_accuracy.values[looks])
    accuracy.plot(rounds[looks], result.accuracy.values[looks], color=COLOURS[0], label="test set")
    accuracy.set_ylabel("accuracy")
    _in_percent(accuracy)
    accuracy.legend(frameon=False, fontsize=8, loc="lower right")
    _paint_ages(figure, ages, result)
    variance.plot([0, *rounds], [0, *result.cumulative_variance.values], color=COLOURS[0])
    alarms = rounds[result.alarm.values >= 0]
    for i, alarm in enumerate(alarms[:_MARKED]):
        label = "change noticed" if i == 0 else None
        variance.axvline(alarm, color=COLOURS[1], linewidth=1.2, linestyle=":", label=label)
    if len(alarms):
        variance.legend(frameon=False, fontsize=8)
    variance.set_ylabel("cumulative AoI variance")
    variance.set_ylim(bottom=0)
    for axes in (accuracy, variance):
        axes.set_xlim(0, rounds[-1] + 0.5)
        axes.set_xlabel("round")
        _tidy_axes(axes)
    _bars(participation, result.participation.values)
    _head(figure, settings, f"{settings.build_policy().name}, {result.sizes['round']} rounds")
    return figure


def _spread_over_clients(axes: Axes, rounds: NDArray[Any], values: NDArray[np.float64]) -> None:
    known = ~np.isnan(values).all(axis=1)
    if known.any():
        low, high = np.nanmin(values[known], axis=1), np.nanmax(values[known], axis=1)
        style: dict[str, Any] = {"color": COLOURS[0], "alpha": 0.15, "linewidth": 0}
        axes.fill_between(rounds[known], low, high, label="clients", **style)


def _paint_ages(figure: Figure, axes: Axes, result: xr.Dataset) -> None:
    """Draw a row for each client, dark where its update is old, grey where it is not there."""
    rounds = result["round"].values
    ages = counted_ages(result).transpose("round", "client").values
    edges = np.append(rounds[0] - 0.5, rounds + 0.5)
    painted = paint_map(axes, edges, ages, ruled=(False, False), cmap="Blues", vmin=1)
    axes.set_facecolor("0.85")  # shows through where a client is not there
    axes.set_xlabel("round")
    axes.set_ylabel("client")
    count_along(axes.xaxis, 8)
    count_along(axes.yaxis, 10)
    count_along(add_color_bar(figure, painted, "age", ax=axes, fraction=0.05), 5)


def _bars(axes: Axes, shares: NDArray[np.float64]) -> None:
    axes.bar(np.arange(len(shares)), shares, width=0.8, color=COLOURS[0])
    axes.axhline(shares.mean(), color="0.3", linewidth=0.8, linestyle="--")
    axes.set_xlabel("client")
    axes.set_ylabel("rounds delivered")
    axes.set_ylim(0, 1)
    _in_percent(axes)
    count_along(axes.xaxis, 12)
    _tidy_axes(axes)


def draw_comparison(result: xr.Dataset) -> Figure:
    """Draw policies side by side on one page: regret, accuracy and fairness.

    Curves are means over runs, and bands are 95 % intervals. Clients are ranked in every run,
    the lowest value first, so that the last two panels show how unequal clients are, whichever
    client is lowest in a run.

    Parameters
    ----------
    result : xarray.Dataset
        From `freshband.federated.comparison.compare` or ``load_comparison``.
    """
    config = _read_comparison(result)
    figure = Figure(figsize=(11.0, 6.2), layout="constrained")
    regret, variance, shares, accuracy, spread, clients = figure.subplots(2, 3).flat
    seen = result.isel(round=result.accuracy.notnull().all(["policy", "run"]).values)
    known = bool(result.regret.notnull().any())
    yardstick = "mean+age oracle" if known else "best fixed set"
    title = f"AoI regret, against the {yardstick}"
    _curves(regret, title, result.regret if known else result.regret_fixed, from_zero=True)
    _curves(variance, "cumulative AoI variance", result.cumulative_variance, from_zero=True)
    _ranked(shares, "rounds in which a client got through", result.participation)
    _curves(accuracy, "test accuracy", seen.accuracy, shares=True)
    late = seen.sel(round=slice(result.sizes["round"] / 10, None))  # the start would hide the rest
    accuracy.set_ylim(bottom=float(late.accuracy.mean("run").min()))
    _curves(spread, "spread of accuracy over clients", seen.accuracy_spread, shares=True)
    spread.set_ylim(0, 1.2 * float(late.accuracy_spread.mean("run").max()) or None)
    last = seen.client_accuracy.isel(round=-1)
    _ranked(clients, "accuracy of each client's classes, last round", last)
    lines, labels = regret.get_legend_handles_labels()
    style = {"ncols": min(4, len(labels)), "frameon": False, "fontsize": 9}
    figure.legend(lines, labels, loc="outside lower center", **style)
    runs = config["runs"]
    several = f"{runs} runs; band: 95 % interval of the mean" if runs > 1 else "1 run"
    _head(figure, config["settings"], several)
    return figure


def _curves(
    axes: Axes,
    title: str,
    curves: xr.DataArray,
    *,
    from_zero: bool = False,
    shares: bool = False,
) -> None:
    styles = _styles_of(curves.policy.values)
    for name, series in over_policies(curves, from_zero=from_zero).items():
        _draw_series(axes, series, shares=shares, label=name, **styles[name])
    if shares:
        _in_percent(axes)
        axes.set_ylim(top=min(1.0, axes.get_ylim()[1]))
    axes.set_title(title, fontsize=9)
    axes.set_xlabel("round")
    axes.set_xlim(0, curves["round"].values[-1])
    _tidy_axes(axes)


def _ranked(axes: Axes, title: str, values: xr.DataArray) -> None:
    """Draw clients in increasing order of their values in each run."""
    styles = _styles_of(values.policy.values)
    marker = {"marker": "o", "markersize": 3.5} if values.sizes["client"] <= 40 else {}
    for name, series in over_policies(rank_clients(values), "client").items():
        _draw_series(axes, series, shares=True, label=name, **styles[name], **marker)
    axes.set_title(title, fontsize=9)
    axes.set_xlabel("client, lowest first")
    _in_percent(axes)
    count_along(axes.xaxis, 10)
    _tidy_axes(axes)


def _in_percent(axes: Axes) -> None:
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def _head(figure: Figure, settings: Training, more: str) -> None:
    """Write data set and channels above the panels."""
    text = (
        f"{settings.dataset} over {settings.channels}: M = {settings.clients}, "
        f"N = {settings.build_channels().n_channels}, seed {settings.seed}; {more}"
    )
    figure.suptitle(text, fontsize=9, x=0.01, ha="left")
