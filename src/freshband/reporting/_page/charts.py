"""Charts of a page: figures for plotly.js with few enough points, and their values as tables.

Colours are properties of the page's style sheet, such as ``var(--series-0)``, which the page's
script looks up, so that one figure fits both themes; ``var(--series-0, 0.18)`` is transparent.
"""

from __future__ import annotations

import html
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from freshband.reporting._numbers import Table, number
from freshband.reporting._series import Series

_SERIES: Final = 8  # colours of the style sheet
POINTS: Final = 400  # most points of a curve, about the resolution of a wide screen
_FEW: Final = 8  # up to this number of whole numbers on an axis each has a tick
_TOLD_ROWS: Final = 100  # most rows in the table of a map
_DASHES: Final = ("solid", "dash", "dashdot", "dot")
SCALE: Final = [[0, "var(--scale-low)"], [0.5, "var(--scale-middle)"], [1, "var(--scale-high)"]]


class LegendEntry(NamedTuple):
    """A button that shows and hides the traces of a group."""

    label: str
    group: str
    colour: str
    mark: str = "solid"  # a dash, "diamond" or "cross" for markers, "block" for areas


@dataclass(frozen=True)
class Chart:
    """A chart of the page: its figure, its explanation, and its values as a table.

    ``key`` is unique on its part of the page. ``meta.group`` of a trace names its button, and
    ``meta.view`` the choice of the menu, called ``choose``, that the trace belongs to.
    """

    key: str
    title: str
    says: str
    traces: Sequence[Any]  # of plotly
    layout: go.Layout
    table: Table
    legend: tuple[LegendEntry, ...] = ()
    views: tuple[str, ...] = ()
    choose: str = "Policy"
    start: int = 0  # the view that is shown first
    height: int = 340  # in pixels
    wide: bool = False
    log: bool = False  # whether the reader can choose a logarithmic axis

    def to_json(self) -> dict[str, Any]:
        """Return the figure in the form that the page's script needs."""
        return {
            "traces": [trace.to_plotly_json() for trace in self.traces],
            "layout": self.layout.to_plotly_json(),
            "height": self.height,
        }

    @property
    def buttons(self) -> tuple[LegendEntry, ...]:
        """The legend, unless the chart has a single curve, which cannot be hidden."""
        marks = any(entry.mark in ("diamond", "cross") for entry in self.legend)
        return self.legend if marks or len(self.legend) > 1 else ()


@cache
def _looks() -> dict[str, Any]:
    return tomllib.loads((files(__package__) / "charts.toml").read_text(encoding="utf-8"))


def look_of(name: str) -> dict[str, Any]:
    """Return the texts and style of a chart, such as ``"loss"`` or ``"training.age"``."""
    *kind, key = name.split(".")
    table = _looks()[kind[0]] if kind else _looks()
    return {"key": key, **table[key]}


def values_of(array: Any) -> list[Any]:
    """Return numbers for JSON: five digits, None for NaN.

    Examples
    --------
    >>> values_of([1.0, 0.123456789, float("nan")])
    [1, 0.12346, None]
    """
    return [_short(value) for value in np.asarray(array).tolist()]


def _short(value: Any) -> Any:
    if isinstance(value, list):
        return [_short(each) for each in value]
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    short = float(f"{value:.5g}")
    return int(short) if short == int(short) else short


def _thin(n: int, at_most: int = POINTS) -> NDArray[np.intp]:
    return np.unique(np.linspace(0, n - 1, min(n, at_most)).round().astype(np.intp))


def axis(
    title: str, *, percent: bool = False, whole: float | None = None, **more: Any
) -> dict[str, Any]:
    """Return an axis in the style of the page: of shares, or of whole numbers up to ``whole``."""
    found: dict[str, Any] = {
        "title": {"text": title, "standoff": 8},
        "automargin": True,
        "gridcolor": "var(--grid)",
        "linecolor": "var(--grid)",
        "zeroline": False,
    }
    if percent:
        found["tickformat"] = ".1~%"  # ticks may be less than 1 % apart
    if whole is not None:
        found["tickformat"] = ",d"
        if whole <= _FEW:
            found["dtick"] = 1  # no halves
    return found | more


# ----------------------------------------------------------------------------------------- curves


def curves(
    key: str,
    title: str,
    says: str,
    series: Mapping[str, Series],
    *,
    y_title: str,
    x_title: str = "round",
    percent: bool = False,
    log: bool = False,
    markers: bool = False,
    late: bool = False,
) -> Chart:
    """Return curves: means over runs with bands of one standard error, thinned.

    With ``late`` the axis fits the values after the first tenth, which would hide the rest.
    """
    traces, legend = [], []
    for place, (name, one) in enumerate(series.items()):
        colour, dash = f"--series-{place % _SERIES}", _DASHES[place // _SERIES % len(_DASHES)]
        entry = LegendEntry(name, str(place), f"var({colour})", dash)
        band, line = _band_and_line(one, entry, f"var({colour}, 0.18)", percent, markers)
        traces += [band, line] if len(one.values) > 1 else [line]
        legend.append(entry)
        log = log and bool(line.y) and line.y[-1] > 0
    extent = max((float(np.max(one.x)) for one in series.values() if len(one.x)), default=0.0)
    y_axis = axis(y_title, percent=percent, **_late_range(series) if late else {})
    layout = go.Layout(xaxis=axis(x_title, whole=extent), yaxis=y_axis, hovermode="x unified")
    table = _curve_table(title, series, percent=percent, counted=x_title == "round")
    return Chart(key, title, says, traces, layout, table, legend=tuple(legend), log=log)


def _band_and_line(
    series: Series, entry: LegendEntry, faint: str, percent: bool, markers: bool
) -> tuple[go.Scatter, go.Scatter]:
    """Return the band of one standard error around a curve, and the curve."""
    summary = series.summarise()
    kept = _thin(len(summary[0]))
    x, mean, error = (part[kept] for part in summary)
    common = {"meta": {"group": entry.group}}
    band = go.Scatter(
        mode="lines", x=values_of(x) + values_of(x[::-1]),
        y=values_of(mean + error) + values_of((mean - error)[::-1]),
        fill="toself", fillcolor=faint, line={"width": 0}, hoverinfo="skip", **common,
    )  # fmt: skip
    line = go.Scatter(
        mode="lines+markers" if markers and len(x) <= 60 else "lines",
        name=html.escape(entry.label, quote=False),  # plotly.js understands some tags
        x=values_of(x), y=values_of(mean),
        line={"color": entry.colour, "width": 2, "dash": entry.mark},
        hovertemplate="%{y:.1%}" if percent else "%{y:,.4~g}", **common,
    )  # fmt: skip
    return band, line


def _late_range(series: Mapping[str, Series]) -> dict[str, Any]:
    """Return the range of an axis that fits the last nine tenths of all curves and bands."""
    edges = []
    for one in series.values():
        x, mean, error = one.summarise()
        after, error = x >= np.max(one.x) / 10, np.nan_to_num(error)
        edges += [(mean - error)[after], (mean + error)[after]]
    held = np.concatenate(edges) if edges else np.array([])
    if not len(held) or held.min() == held.max():
        return {}
    room = 0.04 * (held.max() - held.min())
    return {"range": values_of([held.min() - room, held.max() + room])}


def _curve_table(
    title: str, series: Mapping[str, Series], *, percent: bool, counted: bool
) -> Table:
    """Return the values of curves at each quarter of their length."""
    places: NDArray[Any] = next(iter(series.values())).x if series else np.array([])
    picked = _thin(len(places), 5)[1:] if len(places) > 4 else np.arange(len(places))
    head = ["curve", *(f"{'round ' if counted else ''}{places[at]:,}" for at in picked)]
    rows = []
    for name, one in series.items():
        x, mean, error = (part.tolist() for part in one.summarise())
        known = dict(zip(x, zip(mean, error, strict=True), strict=True))
        found = (known.get(places[at].item(), (None, None)) for at in picked)
        rows.append([name, *(number(*pair, percent=percent) for pair in found)])
    return Table(title, head, rows)


# --------------------------------------------------------------------------------- maps and bars


def heat_map(
    key: str,
    title: str,
    says: str,
    views: Mapping[str, NDArray[np.float64]],
    cuts: NDArray[np.int64],
    *,
    unit: str,
    low: float,
    start: str = "",
) -> Chart:
    """Return a map of clients over rounds; views are of shape (columns, clients)."""
    edges = values_of(cuts + 0.5)
    n_rows = next(iter(views.values())).shape[1]
    top = max(float(np.nanmax(one)) for one in views.values())
    hover = f"round %{{x:,.0f}}<br>client %{{y}}<br>{unit} %{{z:.3~g}}<extra></extra>"
    traces = [
        go.Heatmap(
            x=edges, y=list(range(n_rows)), z=values_of(one.T), zmin=low, zmax=top,
            colorscale=SCALE, colorbar=color_bar(unit), meta={"view": str(place)},
            hovertemplate=hover,
        )
        for place, one in enumerate(views.values())
    ]  # fmt: skip
    rows = [
        [
            str(row),
            *(number(value) for one in views.values() for value in _mean_and_last(one[:, row])),
        ]
        for row in range(min(n_rows, _TOLD_ROWS))
    ]
    names = list(views) if len(views) > 1 else [""]
    head = ["client", *(f"{name} {what}".strip() for name in names for what in ("mean", "last"))]
    whole = float(cuts[-1])
    layout = go.Layout(
        xaxis=axis("round", whole=whole, showgrid=False, range=[edges[0], edges[-1]]),
        yaxis=axis("client", whole=n_rows, showgrid=False, range=[n_rows - 0.5, -0.5]),
        hovermode="closest",
    )
    table = Table(f"{title}: {unit}", head, rows)
    return Chart(
        key, title, says, traces, layout, table,
        views=tuple(views) if len(views) > 1 else (),
        start=list(views).index(start) if start in views else 0,
        height=min(640, max(280, 120 + 14 * n_rows)),
    )  # fmt: skip


def _mean_and_last(values: NDArray[np.float64]) -> tuple[float, float]:
    known = values[~np.isnan(values)]
    return (float(known.mean()), float(known[-1])) if len(known) else (math.nan, math.nan)


def color_bar(title: str, **more: Any) -> dict[str, Any]:
    """Return the scale beside a map."""
    place = {"thickness": 10, "outlinewidth": 0, "len": 1.0, "xpad": 6}
    return {"title": {"text": title, "side": "right"}, **place, **more}


def bars(key: str, title: str, says: str, heights: NDArray[np.float64], *, y_title: str) -> Chart:
    """Return bars, each a client's share of one, and a line at their mean."""
    n, mean = len(heights), float(heights.mean())
    first, second = "var(--series-0)", "var(--series-1)"
    traces = [
        go.Bar(
            name="client", x=list(range(n)), y=values_of(heights), marker={"color": first},
            meta={"group": "bars"}, hovertemplate="client %{x}: %{y:.1%}<extra></extra>",
        ),
        go.Scatter(
            mode="lines", name="mean", x=[-0.5, n - 0.5], y=values_of([mean, mean]),
            line={"color": second, "width": 2, "dash": "dash"}, meta={"group": "mean"},
            hovertemplate="mean %{y:.1%}<extra></extra>",
        ),
    ]  # fmt: skip
    rows = [[str(at), number(float(height), percent=True)] for at, height in enumerate(heights)]
    layout = go.Layout(
        xaxis=axis("client", whole=n, showgrid=False),
        yaxis=axis(y_title, percent=True, range=[0, 1]),
        hovermode="closest",
        bargap=0.2,
    )
    legend = (
        LegendEntry("each client", "bars", first, "block"),
        LegendEntry("mean", "mean", second, "dash"),
    )
    table = Table(title, ["client", y_title], rows)
    return Chart(key, title, says, traces, layout, table, legend=legend)
