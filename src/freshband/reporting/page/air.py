"""The channel map: what the air did, what was chosen, and changes noticed against true ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from freshband.aoi import match_alarms
from freshband.channels.base import ChannelModel, open_air
from freshband.reporting.page.charts import (
    Chart,
    Entry,
    axis,
    color_bar,
    cut_rounds,
    pool,
    values_of,
)
from freshband.reporting.page.markup import Html, number, table

__all__ = ["Air", "Play", "channel_map", "detection_row", "detection_table", "draw_air"]

MOST_DRAWN: Final = 200_000_000  # states, at most, that are drawn again for a picture
_MARKED = 1000  # marks of changes up to which each is drawn, channel by channel
_LINES = 300  # true changes up to which each gets a line at least
_LISTED = 60  # true changes the table lists
_STEP = 4096
_GAP = 36  # pixels above each panel, with its title in them


class Air(NamedTuple):
    """The air of one run in columns: arrays of shape (columns, n_channels)."""

    cuts: NDArray[np.int64]
    means: NDArray[np.float64] | None  # None where channels have no means
    shares: NDArray[np.float64]  # of Good rounds
    breakpoints: NDArray[np.int64]
    changed: NDArray[np.bool_]


class Play(NamedTuple):
    """What a policy did in that run, round by round."""

    assignment: NDArray[np.int64]  # (rounds, n_clients), -1 for none
    alarms: NDArray[np.int64]  # (rounds,) channel found changed, or -1
    beliefs: NDArray[np.float64]  # (rounds, n_channels)
    looks: bool = True  # for changes


def draw_air(
    model: ChannelModel, horizon: int, seed: int, run: int, *, rounds: int, views: int = 1
) -> Air:
    """Draw the first rounds of a run's air again, column by column."""
    stream = open_air(model, horizon, seed, run)
    cuts = cut_rounds(rounds, model.n_channels, 2 * views + 2)
    means, shares = [], []
    for width in np.diff(cuts):
        mean = np.zeros(model.n_channels)
        good = np.zeros(model.n_channels)
        for size in _steps(int(width)):
            block = stream.block(size)
            mean += block.means.sum(axis=0)
            good += block.states.sum(axis=0)
        means.append(mean / width)
        shares.append(good / width)
    return Air(
        cuts,
        np.stack(means) if model.has_means else None,
        np.stack(shares),
        stream.breakpoints,
        stream.changed,
    )


def _steps(width: int) -> list[int]:
    """Return sizes of blocks that make up a column, so that memory stays small."""
    return [_STEP] * (width // _STEP) + ([width % _STEP] if width % _STEP else [])


# ------------------------------------------------------------------------------------ the picture


def channel_map(air: Air, plays: Mapping[str, Play], *, run: int, start: int = 0) -> Chart:
    """Return the map: success rates with changes, states, beliefs and chosen channels."""
    believed = any(not np.isnan(play.beliefs).all() for play in plays.values())
    panels = (
        (["rates"] if air.means is not None else [])
        + ["states"]
        + (["beliefs"] if believed else [])
        + (["chosen"] if plays else [])
    )
    n_channels = air.shares.shape[1]
    height = 50 + len(panels) * (_GAP + min(260, max(90, 20 + 8 * n_channels)))
    layout = _stack(panels, height, int(air.cuts[-1]), n_channels)
    traces: list[dict[str, Any]] = []
    if air.means is not None:
        traces.append(_panel(air, air.means, panels.index("rates"), "success rate"))
    traces.append(_panel(air, air.shares, panels.index("states"), "share Good"))
    for view, play in enumerate(plays.values()):
        if believed:
            beliefs = pool(play.beliefs, air.cuts)
            traces.append(_panel(air, beliefs, panels.index("beliefs"), "believed rate", view))
        used = pool(_used(play.assignment, n_channels), air.cuts)
        traces.append(_panel(air, used, panels.index("chosen"), "share of rounds used", view))
    marks, legend = _marks(air, plays)
    return Chart(
        key="channels",
        title="Channel map",
        says=_explain(air, panels, run),
        traces=traces + marks,
        layout=layout,
        table=_changes_table(air, plays),
        legend=legend,
        views=tuple(plays) if len(plays) > 1 else (),
        choose="Choices of",
        start=start,
        height=height,
        wide=True,
    )


_TITLES: Final = {
    "rates": "Success rates",
    "states": "States: share of Good rounds",
    "beliefs": "Success rates believed in",
    "chosen": "Chosen: share of rounds used",
}


def _stack(panels: list[str], height: int, rounds: int, n_channels: int) -> dict[str, Any]:
    """Lay panels out one below the other, on one axis of rounds."""
    n = len(panels)
    gap = _GAP / height
    each = 1 / n - gap
    layout: dict[str, Any] = {"hovermode": "closest", "annotations": []}
    for place, panel in enumerate(panels):
        top = 1 - place / n - gap
        bottom = max(0.0, top - each)
        layout[f"yaxis{place + 1 if place else ''}"] = axis(
            "channel",
            whole=n_channels,
            showgrid=False,
            range=[n_channels - 0.5, -0.5],
            domain=[bottom, top],
        )
        layout["annotations"].append(
            {
                "text": f"<b>{_TITLES[panel]}</b>",
                "xref": "paper",
                "yref": "paper",
                "x": 0,
                "y": top,
                "xanchor": "left",
                "yanchor": "bottom",
                "showarrow": False,
                "font": {"size": 12, "color": "@ink"},
            }
        )
    last = f"y{n if n > 1 else ''}"
    layout["xaxis"] = axis(
        "round", whole=rounds, showgrid=False, anchor=last, range=[0.5, rounds + 0.5]
    )
    return layout


def _panel(
    air: Air, values: NDArray[np.float64], place: int, told: str, view: int | None = None
) -> dict[str, Any]:
    chosen = told == "share of rounds used"
    scale: Any = [[0, "@scale-low"], [0.5, "@scale-middle"], [1, "@scale-high"]]
    return {
        "type": "heatmap",
        "x": values_of(air.cuts + 0.5),
        "y": list(range(values.shape[1])),
        "z": values_of(values.T),
        "yaxis": f"y{place + 1 if place else ''}",
        "zmin": 0,
        "zmax": 1,
        "colorscale": scale if chosen else "Viridis",
        "showscale": place == 0,
        "ygap": 1,
        "colorbar": color_bar("", tickformat=".0%", tickvals=[0, 0.25, 0.5, 0.75, 1]),
        "meta": {} if view is None else {"view": str(view)},
        "hovertemplate": f"round %{{x:,.0f}}<br>channel %{{y}}<br>{told} %{{z:.0%}}<extra></extra>",
    }


def _used(assignment: NDArray[np.int64], n_channels: int) -> NDArray[np.float64]:
    used = np.zeros((len(assignment), n_channels))
    rounds, clients = np.nonzero(assignment >= 0)
    used[rounds, assignment[rounds, clients]] = 1
    return used


def _marks(air: Air, plays: Mapping[str, Play]) -> tuple[list[dict[str, Any]], tuple[Entry, ...]]:
    """Mark true changes, and changes noticed, in the panel on top."""
    traces, legend = [], []
    last = int(air.cuts[-1])
    seen = air.breakpoints <= last
    which, channels = np.nonzero(air.changed[seen])
    places = air.breakpoints[seen] - 0.5  # between the old regime and the new one
    if 0 < len(which) <= _MARKED:
        traces.append(_points("true", places[which], channels, "diamond-tall", "@mark", None))
        legend.append(Entry("true changes", "true", "@mark", "diamond"))
    elif 0 < len(places) <= _LINES:
        traces.append(_lines(places, air.shares.shape[1]))
        legend.append(Entry("true changes", "true", "@mark", "diamond"))
    noticed = False
    for view, play in enumerate(plays.values()):
        rounds = np.flatnonzero(play.alarms >= 0)
        if 0 < len(rounds) <= _MARKED:
            traces.append(
                _points("noticed", rounds + 1, play.alarms[rounds], "x", "@alarm", str(view))
            )
            noticed = True
    if noticed:
        legend.append(Entry("changes noticed", "noticed", "@alarm", "cross"))
    return traces, tuple(legend)


def _points(
    group: str, rounds: Any, channels: Any, symbol: str, colour: str, view: str | None
) -> dict[str, Any]:
    told = "true change before round" if group == "true" else "change noticed in round"
    return {
        "type": "scatter",
        "mode": "markers",
        "x": values_of(rounds),
        "y": values_of(channels),
        "customdata": [int(np.ceil(each)) for each in rounds],
        "marker": {
            "symbol": symbol,
            "size": 10,
            "color": colour,
            "line": {"color": "@mark-edge", "width": 1},
        },
        "cliponaxis": False,
        "meta": {"group": group} | ({} if view is None else {"view": view}),
        "hovertemplate": f"channel %{{y}}<br>{told} %{{customdata:,}}<extra></extra>",
    }


def _lines(places: Any, n_channels: int) -> dict[str, Any]:
    x = [each for place in places.tolist() for each in (place, place, None)]
    y = [-0.5, n_channels - 0.5, None] * len(places)
    return {
        "type": "scatter",
        "mode": "lines",
        "x": x,
        "y": y,
        "line": {"color": "@mark", "width": 1.5},
        "hoverinfo": "skip",
        "meta": {"group": "true"},
    }


def _explain(air: Air, panels: list[str], run: int) -> str:
    width = round(int(air.cuts[-1]) / (len(air.cuts) - 1))
    says = f"A row for each channel, rounds from left to right, in run {run}: "
    says += "yellow is good, dark is bad"
    if "chosen" in panels:
        says += "; the last panel shows which channels were used"
    says += f"; a column stands for {width:,} rounds." if width > 1 else "."
    if len(air.breakpoints):
        says += f" The air changed {len(air.breakpoints):,} times."
    elif air.means is not None:
        says += " The air never changed."
    return says


# ------------------------------------------------------------------------------------- the tables


def detection_row(alarms: Any, breakpoints: Any, *, looks: bool) -> list[float]:
    """Return the numbers of true changes, found, missed, false alarms, and the mean delay.

    A policy that does not look for changes has NaN in place of all but the first.
    """
    if not looks:
        return [len(breakpoints), *[np.nan] * 4]
    found = match_alarms(np.sort(alarms), breakpoints)
    return [len(breakpoints), found.detected, found.missed, found.false, found.delay]


def detection_table(rows: Mapping[str, list[float]]) -> Html:
    """Tell changes noticed against true ones, policy by policy, means over runs."""
    head = ["policy", "true changes", "noticed", "missed", "false alarms", "delay, rounds"]
    told = []
    for name, (true, noticed, *others) in rows.items():
        found = "no detector" if np.isnan(noticed) else number(noticed)
        told.append([name, number(true), found, *(number(value) for value in others)])
    return table("Changes noticed against true ones, mean over runs", head, told)


def _changes_table(air: Air, plays: Mapping[str, Play]) -> Html:
    """Tell true changes one by one, with the round in which each was noticed first."""
    changes = air.breakpoints
    plays = {name: play for name, play in plays.items() if play.looks}
    if not len(changes):
        head = ["channel", "share of Good rounds"]
        width = np.diff(air.cuts)
        good = (air.shares * width[:, None]).sum(axis=0) / width.sum()
        rows = [[str(at), number(float(one), percent=True)] for at, one in enumerate(good)]
        return table("Channels over the whole run", head, rows)
    ends = [*changes[1:].tolist(), int(air.cuts[-1]) + 1]
    rows = []
    for begin, end, changed in zip(
        changes[:_LISTED].tolist(), ends, air.changed[:_LISTED], strict=False
    ):
        channels = np.flatnonzero(changed)
        told = ", ".join(map(str, channels)) if len(channels) <= 8 else f"{len(channels)} channels"
        row = [f"{begin:,}", told]
        for play in plays.values():
            rounds = np.flatnonzero(play.alarms >= 0) + 1
            heard = rounds[(rounds >= begin) & (rounds < end)]
            row.append(f"round {heard[0]:,} (+{heard[0] - begin:,})" if len(heard) else "not")
        rows.append(row)
    head = ["first round", "channels that change"]
    head += [f"noticed by {name}" if len(plays) > 1 else "noticed" for name in plays]
    more = "" if len(changes) <= _LISTED else f", the first {_LISTED} of {len(changes):,}"
    return table(f"True changes{more}", head, rows)
