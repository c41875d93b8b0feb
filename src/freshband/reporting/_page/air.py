"""The channel map: the air (channel environment), the channels chosen, and the changes noticed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import plotly.graph_objects as go
from numpy.typing import ArrayLike, NDArray

from freshband.aoi import match_alarms
from freshband.reporting._air import Air, pool
from freshband.reporting._numbers import Table, number
from freshband.reporting._page.charts import SCALE, Chart, LegendEntry, axis, color_bar, values_of
from freshband.schedulers.beliefs import Beliefs

_MARKED = 1000  # up to this number of changes each is drawn, channel by channel
_LINES = 300  # up to this number of true changes each gets at least a line
_LISTED = 60  # true changes the table lists
_GAP = 36  # pixels above each panel, with its title in them
_TITLES: Final = {
    "success rate": "Success rates",
    "share Good": "States: share of Good rounds",
    "believed rate": "Estimated success rates",
    "share of rounds used": "Chosen: share of rounds used",
    "probability": "Probability of a change since the last one reported",
}  # of panels, by what their values are


class Play(NamedTuple):
    """The decisions of a policy in one run, round by round."""

    assignment: NDArray[np.int64]  # (rounds, n_clients), -1 for none
    alarms: NDArray[np.int64]  # (rounds,) channel found changed, or -1
    beliefs: NDArray[np.float64]  # (rounds, n_channels)
    looks: bool = True  # for changes


# ------------------------------------------------------------------------------------ the picture


def channel_map(air: Air, plays: Mapping[str, Play], *, run: int, start: int = 0) -> Chart:
    """Return the map: success rates with changes, states, beliefs and chosen channels."""
    rates, states, beliefs, chosen, _ = _TITLES
    shown: list[tuple[str, NDArray[np.float64], int | None]] = [(states, air.shares, None)]
    if air.means is not None:
        shown.insert(0, (rates, air.means, None))
    n_channels = air.shares.shape[1]
    believed = any(not np.isnan(play.beliefs).all() for play in plays.values())
    for view, play in enumerate(plays.values()):
        if believed:
            shown.append((beliefs, pool(play.beliefs, air.cuts), view))
        shown.append((chosen, pool(_used(play.assignment, n_channels), air.cuts), view))
    told = {name for name, *_ in shown}
    panels = [name for name in _TITLES if name in told]
    height = 50 + len(panels) * (_GAP + min(260, max(90, 20 + 8 * n_channels)))
    traces = [_panel(air, values, panels.index(name), name, view) for name, values, view in shown]
    marks, legend = _marks(air, plays)
    return Chart(
        key="channels",
        title="Channel map",
        says=_explain(air, run, chosen=bool(plays)),
        traces=traces + marks,
        layout=_stack(panels, height, int(air.cuts[-1]), n_channels),
        table=_changes_table(air, plays),
        legend=legend,
        views=tuple(plays) if len(plays) > 1 else (),
        choose="Choices of",
        start=start,
        height=height,
        wide=True,
    )


def beliefs_map(air: Air, believed: Sequence[Beliefs], policy: str, run: int) -> Chart:
    """Return the true success rates (or states), and what a policy believed about them."""
    rates, states, beliefs, _, change = _TITLES
    shown = {
        **({states: air.shares} if air.means is None else {rates: air.means}),
        beliefs: np.array([each.rate for each in believed]),
        change: np.array([each.changed for each in believed]),
    }
    n_channels = air.shares.shape[1]
    height = 50 + len(shown) * (_GAP + min(260, max(90, 20 + 8 * n_channels)))
    marks, legend = _marks(air, {})
    last = believed[-1]
    ages = [number(float(age)) for age in last.segment_age]
    periods = [0] * n_channels if last.period is None else last.period.tolist()
    rows = [
        [
            str(channel),
            f"{number(float(rate), percent=True)} ± {number(float(spread), percent=True)}",
            age,
            str(period or "none"),
        ]
        for channel, (rate, spread, age, period) in enumerate(
            zip(last.rate, last.spread, ages, periods, strict=True)
        )
    ]
    return Chart(
        key="beliefs",
        title="Beliefs",
        says=f"What {policy} knew in run {run}, from acknowledgements alone: the truth above, then "
        "the success rates that it expected, and how likely it thought that a channel had changed "
        "since it last reported a change.",
        traces=[
            _panel(air, values, place, name, None)
            for place, (name, values) in enumerate(shown.items())
        ]
        + marks,
        layout=_stack(list(shown), height, int(air.cuts[-1]), n_channels),
        table=Table(
            "Beliefs after the last round",
            [
                "channel",
                "expected success rate",
                "expected age of its segment, rounds",
                "repeats after, rounds",
            ],
            rows,
        ),
        legend=legend,
        height=height,
        wide=True,
    )


def _stack(panels: list[str], height: int, rounds: int, n_channels: int) -> go.Layout:
    """Lay panels out one below the other, on one axis of rounds."""
    n, gap = len(panels), _GAP / height
    layout: dict[str, Any] = {"hovermode": "closest", "annotations": []}
    for place, panel in enumerate(panels):
        top = 1 - place / n - gap
        domain = [max(0.0, top - (1 / n - gap)), top]
        layout[f"yaxis{place + 1}"] = axis(
            "channel", whole=n_channels, showgrid=False, range=[n_channels - 0.5, -0.5],
            domain=domain,
        )  # fmt: skip
        layout["annotations"].append(
            go.layout.Annotation(
                text=f"<b>{_TITLES[panel]}</b>", font={"size": 12, "color": "var(--ink)"},
                x=0, y=top, xref="paper", yref="paper", xanchor="left", yanchor="bottom",
                showarrow=False,
            )
        )  # fmt: skip
    ends = [0.5, rounds + 0.5]
    layout["xaxis"] = axis("round", whole=rounds, showgrid=False, anchor=f"y{n}", range=ends)
    return go.Layout(layout)


def _panel(
    air: Air, values: NDArray[np.float64], place: int, told: str, view: int | None
) -> go.Heatmap:
    chosen = told in ("share of rounds used", "probability")
    return go.Heatmap(
        x=values_of(air.cuts + 0.5),
        y=list(range(values.shape[1])),
        z=values_of(values.T),
        yaxis=f"y{place + 1}",
        zmin=0,
        zmax=1,
        colorscale=SCALE if chosen else "Viridis",
        showscale=place == 0,
        ygap=1,
        colorbar=color_bar("", tickformat=".0%", tickvals=[0, 0.25, 0.5, 0.75, 1]),
        meta={} if view is None else {"view": str(view)},
        hovertemplate=f"round %{{x:,.0f}}<br>channel %{{y}}<br>{told} %{{z:.0%}}<extra></extra>",
    )


def _used(assignment: NDArray[np.int64], n_channels: int) -> NDArray[np.float64]:
    used = np.zeros((len(assignment), n_channels))
    rounds, clients = np.nonzero(assignment >= 0)
    used[rounds, assignment[rounds, clients]] = 1
    return used


def _marks(air: Air, plays: Mapping[str, Play]) -> tuple[list[Any], tuple[LegendEntry, ...]]:
    """Mark true changes, and changes noticed, in the panel on top."""
    traces, legend = [], {}
    seen = air.breakpoints <= air.cuts[-1]
    which, channels = np.nonzero(air.changed[seen])
    places = air.breakpoints[seen] - 0.5  # between the old regime and the new one
    if 0 < len(which) <= _MARKED:
        traces.append(_points("true", places[which], channels))
    elif 0 < len(places) <= _LINES:
        traces.append(_lines(places, air.shares.shape[1]))
    if traces:
        legend["true"] = LegendEntry("true changes", "true", "var(--mark)", "diamond")
    for view, play in enumerate(plays.values()):
        rounds = np.flatnonzero(play.alarms >= 0)
        if 0 < len(rounds) <= _MARKED:
            traces.append(_points("noticed", rounds + 1, play.alarms[rounds], view=str(view)))
            colour = "var(--alarm)"
            legend["noticed"] = LegendEntry("changes noticed", "noticed", colour, "cross")
    return traces, tuple(legend.values())


def _points(group: str, rounds: Any, channels: Any, **view: str) -> go.Scatter:
    symbol, colour, told = {
        "true": ("diamond-tall", "var(--mark)", "true change before round"),
        "noticed": ("x", "var(--alarm)", "change noticed in round"),
    }[group]
    edge = {"color": "var(--mark-edge)", "width": 1}
    return go.Scatter(
        mode="markers",
        x=values_of(rounds),
        y=values_of(channels),
        customdata=[int(np.ceil(each)) for each in rounds],
        marker={"symbol": symbol, "size": 10, "color": colour, "line": edge},
        cliponaxis=False,
        meta={"group": group, **view},
        hovertemplate=f"channel %{{y}}<br>{told} %{{customdata:,}}<extra></extra>",
    )


def _lines(places: Any, n_channels: int) -> go.Scatter:
    return go.Scatter(
        mode="lines",
        x=[each for place in places.tolist() for each in (place, place, None)],
        y=[-0.5, n_channels - 0.5, None] * len(places),
        line={"color": "var(--mark)", "width": 1.5},
        hoverinfo="skip",
        meta={"group": "true"},
    )


def _explain(air: Air, run: int, *, chosen: bool) -> str:
    width = round(int(air.cuts[-1]) / (len(air.cuts) - 1))
    says = f"A row for each channel, rounds from left to right, in run {run}: "
    says += "yellow is good, dark is bad"
    if chosen:
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


def detection_table(found: Mapping[str, ArrayLike]) -> Table:
    """Return each policy's mean `detection_row` over runs, the first axis."""
    head = ["policy", "true changes", "noticed", "missed", "false alarms", "delay, rounds"]
    told = []
    for name, rows in found.items():
        true, noticed, *others = pool(rows, np.array([0, len(np.asarray(rows))]))[0].tolist()
        heard = "no detector" if np.isnan(noticed) else number(noticed)
        told.append([name, number(true), heard, *(number(value) for value in others)])
    return Table("Changes noticed against true ones, mean over runs", head, told)


def _changes_table(air: Air, plays: Mapping[str, Play]) -> Table:
    """Return the true changes, each with the round in which it was first noticed."""
    changes = air.breakpoints
    plays = {name: play for name, play in plays.items() if play.looks}
    if not len(changes):
        head = ["channel", "share of Good rounds"]
        good = np.average(air.shares, axis=0, weights=np.diff(air.cuts))
        rows = [[str(at), number(float(one), percent=True)] for at, one in enumerate(good)]
        return Table("Channels over the whole run", head, rows)
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
    return Table(f"True changes{more}", head, rows)
