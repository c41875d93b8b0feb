"""A picture of the air: success rates and states of every channel over the rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from freshband.channels import ChannelModel, build, links_differ, registry
from freshband.parameters import whole_number
from freshband.reporting._air import Air, cut_rounds, read_air
from freshband.reporting._maps import add_color_bar, count_along, paint_map
from freshband.reporting._numbers import counted

_EXACT = 300  # up to this number of rounds every state is shown
_POOLED = 4  # columns of rates per column of states: narrower ones show noise
_WINDOW = 24  # columns in a running average
_MARKED = 300  # up to this number of breakpoints each is marked above the map
_LINED = 60  # up to this number each has a line through the channels that change
_CLIENTS = 9  # maps at most, where links differ per client
_COLOURS = "viridis"  # readable in grey and with any colour vision


def draw(
    model: str | ChannelModel, rounds: int, seed: int, run: int = 0, clients: int | None = None
) -> Figure:
    """Draw the air of one run as a map of channels over rounds.

    The air is the channel environment. Above are the success rates, with a mark at every breakpoint
    (the first 100,000 are known) and, where there are few, a line through the channels that change.
    Below are the states; a long run is cut into columns that show the share of Good rounds. A model
    without means shows running averages of its states instead of the rates.

    Where links differ per client, there is a map of the success rates (or running averages) for
    each client, and for up to nine of them if there are more.

    Parameters
    ----------
    model, rounds, seed, run, clients
        As in `freshband.channels.open_air`; the air is that of the simulation's run.

    Returns
    -------
    matplotlib.figure.Figure
        Ready for ``figure.savefig("air.pdf")``; it needs no display.

    Examples
    --------
    >>> figure = draw("fig2", rounds=20_000, seed=0)
    >>> [axes.get_ylabel() for axes in figure.axes]
    ['channel', 'channel', 'success rate, share of Good rounds']
    """
    rounds = whole_number("rounds", rounds, at_least=1)
    model = build(model)
    air = read_air(model, rounds, seed, run, cut_rounds(rounds), clients)
    name = registry.name_of(type(model)) or type(model).__name__
    title = f"{name}, seed {seed}, run {run}"
    return (_draw_links if links_differ(model) else _draw_channels)(air, rounds, title)


def _rates(air: Air, rounds: int) -> tuple[npt.NDArray[np.float64], str]:
    """Return the success rates, or running averages of the states, and a title."""
    if air.means is not None:
        title = "Success rates"
        if len(air.breakpoints):
            title += f", {counted(len(air.breakpoints), 'breakpoint')}"
        return air.means, title
    window = min(_WINDOW, len(air.shares))
    width = round(window * rounds / len(air.shares))
    return _smooth(air.shares, window), f"Running average of the states over {width:,} rounds"


def _draw_links(air: Air, rounds: int, title: str) -> Figure:
    """Draw a map for each of up to nine clients, side by side."""
    rates, kind = _rates(air, rounds)
    clients, n_channels = rates.shape[1:]
    shown = np.unique(np.linspace(0, clients - 1, min(clients, _CLIENTS)).round().astype(int))
    across = min(len(shown), 3)
    down = -(-len(shown) // across)
    height = 1.1 + down * (0.5 + min(max(0.16 * n_channels, 0.9), 2.0))
    figure = Figure(figsize=(7.2, height), layout="constrained")
    panels = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False)
    for place, panel in enumerate(panels.flat):
        if place >= len(shown):
            panel.set_visible(False)
            continue
        client = shown[place]
        colours = _paint(panel, air.cuts, rates[:, client], f"client {client}", ticks=9 // across)
        panel.set_ylabel("channel" if place % across == 0 else "")
        if place + across >= len(shown):  # nothing below
            panel.set_xlabel("round")
            panel.tick_params(labelbottom=True)
    label = "success rate" if air.means is not None else "share of Good rounds"
    add_color_bar(figure, colours, label, ax=list(panels.flat), fraction=0.04)
    who = (
        counted(clients, "client")
        if len(shown) == clients
        else f"{len(shown)} of {clients:,} clients"
    )
    figure.suptitle(f"{title}\n{kind}, {who}", fontsize="medium")
    return figure


def _draw_channels(air: Air, rounds: int, title: str) -> Figure:
    """Draw success rates above states."""
    n_channels = air.shares.shape[1]
    height = 2.0 + 2 * min(max(0.16 * n_channels, 0.9), 3.2)
    figure = Figure(figsize=(7.2, height), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, sharey=True)
    colours = _paint(top, air.cuts, *_rates(air, rounds))
    if len(air.breakpoints):
        _mark(top, air)
    if rounds <= _EXACT:
        _paint(bottom, air.cuts, air.shares, "States: dark is Bad, light is Good")
    else:
        cuts, shares = _pool(air.cuts, air.shares)
        width = round(rounds / len(shares))
        _paint(bottom, cuts, shares, f"Share of Good rounds, {width:,} at a time")
    bottom.set_xlabel("round")
    label = "success rate, share of Good rounds"
    add_color_bar(figure, colours, label, ax=[top, bottom], fraction=0.04)
    figure.suptitle(title, fontsize="medium")
    return figure


def _pool(
    cuts: npt.NDArray[np.int64], shares: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Join neighbouring columns."""
    sizes = np.diff(cuts)
    begins = np.arange(0, len(shares), _POOLED)
    good = np.add.reduceat(shares * sizes[:, None], begins, axis=0)
    coarse = np.append(cuts[begins], cuts[-1])
    return coarse, good / np.diff(coarse)[:, None]


def _smooth(values: npt.NDArray[np.float64], window: int) -> npt.NDArray[np.float64]:
    """Return centred running averages along the first axis, shorter at both ends."""
    rolling = xr.DataArray(values).rolling(dim_0=window, center=True, min_periods=1)
    averages: npt.NDArray[np.float64] = rolling.mean().values
    return averages


def _paint(
    axes: Axes,
    cuts: npt.NDArray[np.int64],
    values: npt.NDArray[np.float64],
    title: str,
    ticks: int = 8,
) -> QuadMesh:
    """Show values in [0, 1] as a map of channels over rounds."""
    edges = cuts + 0.5  # round t lies between t - 1/2 and t + 1/2
    ruled = (False, values.shape[1] <= 16)
    colours = paint_map(axes, edges, values, ruled=ruled, cmap=_COLOURS, vmin=0, vmax=1)
    axes.set_ylabel("channel")
    axes.set_title(title, loc="left", fontsize="small", pad=9)
    count_along(axes.yaxis, 10)
    count_along(axes.xaxis, ticks)
    return colours


def _mark(axes: Axes, air: Air) -> None:
    """Mark breakpoints above the map and, where they are few, the channels that change."""
    if len(air.breakpoints) > _MARKED:
        return  # marks without gaps are useless; the title gives their number
    places = air.breakpoints - 0.5  # between the round before and the round of the change
    figure = axes.get_figure(root=True)
    assert figure is not None  # the axes were made by one
    lift = ScaledTranslation(0, 4 / 72, figure.dpi_scale_trans)  # four points above the map
    few = len(places) <= _LINED
    axes.plot(
        places, np.ones(len(places)), "v" if few else "|", markersize=5 if few else 4,
        markeredgewidth=0 if few else 0.5, color="black", clip_on=False,
        transform=axes.get_xaxis_transform() + lift,
    )  # fmt: skip
    if few:
        which, channels = np.nonzero(air.changed)
        lines: dict[str, Any] = {"color": "white", "linewidth": 1.0}
        axes.vlines(places[which], channels - 0.5, channels + 0.5, **lines)
