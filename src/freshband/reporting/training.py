"""Pictures of training: one run on its own, or several policies side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from freshband.federated.comparison import read_comparison
from freshband.federated.result import read_settings
from freshband.federated.settings import Training
from freshband.reporting.curves import COLOURS, DASHES

__all__ = ["draw_comparison", "draw_training"]

_MARKED = 40  # alarms up to which each is marked


def draw_training(result: xr.Dataset) -> Figure:
    """Draw one run: accuracy, every client's age, cumulative age variance and participation.

    Parameters
    ----------
    result : xarray.Dataset
        From `freshband.federated.result.collect_records` or ``load_training``.

    Returns
    -------
    matplotlib.figure.Figure
        Ready for ``figure.savefig("training.pdf")``. It belongs to no window.
    """
    settings = read_settings(result)
    figure = Figure(figsize=(9.0, 5.6), layout="constrained")
    accuracy, ages, variance, participation = figure.subplots(2, 2).flat
    rounds = result["round"].values
    looks = result.accuracy.notnull().values
    _spread_over_clients(accuracy, rounds[looks], result.client_accuracy.values[looks])
    accuracy.plot(rounds[looks], result.accuracy.values[looks], color=COLOURS[0], label="test set")
    accuracy.set_ylabel("accuracy")
    accuracy.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
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
        _plain(axes)
    _bars(participation, result.participation.values)
    figure.suptitle(
        f"{_told(settings)}; {settings.build_policy().name}, {result.sizes['round']} rounds",
        fontsize=9,
        x=0.01,
        ha="left",
    )
    return figure


def _spread_over_clients(axes: Axes, rounds: NDArray[Any], values: NDArray[np.float64]) -> None:
    known = ~np.isnan(values).all(axis=1)
    if known.any():
        low, high = np.nanmin(values[known], axis=1), np.nanmax(values[known], axis=1)
        axes.fill_between(
            rounds[known], low, high, color=COLOURS[0], alpha=0.15, linewidth=0, label="clients"
        )


def _paint_ages(figure: Figure, axes: Axes, result: xr.Dataset) -> None:
    """Show who waits: a row for each client, dark where its update is old."""
    rounds, clients = result["round"].values, result["client"].values
    edges = np.concatenate([[rounds[0] - 0.5], rounds + 0.5])
    rows = np.arange(len(clients) + 1) - 0.5
    painted = axes.pcolormesh(
        edges, rows, result.ages.values.T, cmap="Blues", vmin=1, rasterized=True
    )
    axes.set_xlabel("round")
    axes.set_ylabel("client")
    axes.yaxis.set_major_locator(MaxNLocator(nbins=10, integer=True, min_n_ticks=1))
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(painted, ax=axes, fraction=0.05, pad=0.02)
    bar.set_label("age")
    bar.ax.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    bar.outline.set_visible(False)


def _bars(axes: Axes, shares: NDArray[np.float64]) -> None:
    axes.bar(np.arange(len(shares)), shares, width=0.8, color=COLOURS[0])
    axes.axhline(shares.mean(), color="0.3", linewidth=0.8, linestyle="--")
    axes.set_xlabel("client")
    axes.set_ylabel("rounds delivered")
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=12, integer=True, min_n_ticks=1))
    _plain(axes)


# ------------------------------------------------------------------------------------- comparison


def draw_comparison(result: xr.Dataset) -> Figure:
    """Draw policies side by side on one page: regret, accuracy and fairness.

    Curves are means over runs, bands one standard error. Clients are ranked in every run, from the
    one worst off, so that the last two panels show how unequal they are, whoever they are.

    Parameters
    ----------
    result : xarray.Dataset
        From `freshband.federated.comparison.compare` or ``load_comparison``.

    Returns
    -------
    matplotlib.figure.Figure
        Ready for ``figure.savefig("comparison.pdf")``. It belongs to no window.
    """
    config = read_comparison(result)
    figure = Figure(figsize=(11.0, 6.2), layout="constrained")
    regret, variance, shares, accuracy, spread, clients = figure.subplots(2, 3).flat
    looks = result.accuracy.notnull().all(["policy", "run"]).values
    seen = result.isel(round=looks)
    known = bool(result.regret.notnull().any())
    yardstick = "mean+age oracle" if known else "best fixed set"
    _curves(regret, result.regret if known else result.regret_fixed, from_zero=True)
    regret.set_title(f"AoI regret, against the {yardstick}", fontsize=9)
    _curves(variance, result.cumulative_variance, from_zero=True)
    variance.set_title("cumulative AoI variance", fontsize=9)
    _ranked(shares, result.participation)
    shares.set_title("rounds in which a client got through", fontsize=9)
    _curves(accuracy, seen.accuracy)
    accuracy.set_title("test accuracy", fontsize=9)
    accuracy.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    late = seen.sel(round=slice(result.sizes["round"] / 10, None))  # the start would hide the rest
    accuracy.set_ylim(bottom=float(late.accuracy.mean("run").min()))
    _curves(spread, seen.accuracy_spread)
    spread.set_title("spread of accuracy over clients", fontsize=9)
    spread.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    spread.set_ylim(0, 1.2 * float(late.accuracy_spread.mean("run").max()) or None)
    _ranked(clients, seen.client_accuracy.isel(round=-1))
    clients.set_title("accuracy of each client's classes, last round", fontsize=9)
    figure.legend(
        *regret.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=min(4, result.sizes["policy"]),
        frameon=False,
        fontsize=9,
    )
    runs = config["runs"]
    several = f"{runs} runs; band: ± one standard error" if runs > 1 else "1 run"
    figure.suptitle(f"{_told(config['settings'])}; {several}", fontsize=9, x=0.01, ha="left")
    return figure


def _styles(policies: NDArray[Any]) -> dict[str, dict[str, Any]]:
    """Return a colour for each policy, then other dashes."""
    return {
        str(name): {
            "color": COLOURS[place % len(COLOURS)],
            "linestyle": DASHES[place // len(COLOURS) % len(DASHES)],
        }
        for place, name in enumerate(policies)
    }


def _curves(axes: Axes, curves: xr.DataArray, *, from_zero: bool = False) -> None:
    rounds = curves["round"].values
    for name, style in _styles(curves.policy.values).items():
        values = curves.sel(policy=name).transpose("run", "round").values
        x = rounds
        if from_zero:
            x = np.concatenate([[0], rounds])
            values = np.concatenate([np.zeros((len(values), 1)), values], axis=1)
        _line_and_band(axes, x, values, name, style)
    axes.set_xlabel("round")
    axes.set_xlim(0, rounds[-1])
    _plain(axes)


def _ranked(axes: Axes, values: xr.DataArray) -> None:
    """Draw clients from the one worst off in a run to the one best off."""
    for name, style in _styles(values.policy.values).items():
        ranked = np.sort(values.sel(policy=name).transpose("run", "client").values, axis=1)
        places = np.arange(1, ranked.shape[1] + 1)
        marker = {"marker": "o", "markersize": 3.5} if len(places) <= 40 else {}
        _line_and_band(axes, places, ranked, name, {**style, **marker})
    axes.set_xlabel("client, the one worst off first")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True, min_n_ticks=1))
    _plain(axes)


def _line_and_band(
    axes: Axes, x: NDArray[Any], values: NDArray[np.float64], label: str, style: dict[str, Any]
) -> None:
    """Draw the mean over runs, the first axis, with a band of one standard error."""
    mean = values.mean(axis=0)
    axes.plot(x, mean, linewidth=1.6, label=label, **style)
    if len(values) > 1:
        error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
        axes.fill_between(
            x, mean - error, mean + error, alpha=0.2, linewidth=0, color=style["color"]
        )


def _plain(axes: Axes) -> None:
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _told(settings: Training) -> str:
    return (
        f"{settings.dataset} over {settings.channels}: M = {settings.clients}, "
        f"N = {settings.build_channels().n_channels}, seed {settings.seed}"
    )
