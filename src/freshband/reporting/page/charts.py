"""Charts of a page: figures for plotly.js as plain data, thinned, beside the same as a table.

Colours are names, such as ``"@series-0"`` or ``"@ink"``, which the page looks up in its style
sheet, so that one figure suits light and dark.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from freshband.reporting.page.markup import Html, number, table

__all__ = [
    "Chart",
    "Entry",
    "Series",
    "axis",
    "bars",
    "curves",
    "cut_rounds",
    "heat_map",
    "pool",
    "safe",
    "values_of",
]

SERIES: Final = 8  # colours of the style sheet
POINTS: Final = 400  # of a curve, at most: about what a wide screen resolves
BINS: Final = 480  # columns of a map, at most
CELLS: Final = 400_000  # of all views of a map together, at most
_FEWEST: Final = 60  # columns of a map, whatever the number of cells
_FEW: Final = 8  # whole numbers of an axis up to which each has its tick
_DASHES: Final = ("solid", "dash", "dashdot", "dot")

Trace = dict[str, Any]


class Entry(NamedTuple):
    """A button that shows and hides what belongs to a group."""

    label: str
    group: str
    colour: str
    mark: str = "solid"  # a dash, "diamond" or "cross" for markers, "block" for areas


class Series(NamedTuple):
    """One curve: its places, shape (n,), and values of every run, shape (runs, n)."""

    x: NDArray[Any]
    values: NDArray[np.float64]


@dataclass(frozen=True)
class Chart:
    """What the page needs to draw a chart, to explain it, and to tell its values in words.

    Attributes
    ----------
    key : str
        Unique on its part of the page; made of letters, digits and hyphens.
    title, says : str
        Its heading, and one sentence on how to read it.
    traces, layout : list and dict
        Of the figure, as plotly.js takes them; ``meta.group`` of a trace names its button,
        ``meta.view`` the choice of the menu it belongs to.
    table : Html
        The values as a table.
    legend, views : tuple
        Buttons, and choices of a menu called ``choose`` that begins with number ``start``.
    height : int
        In pixels.
    wide : bool
        Whether it takes the whole width of the page.
    log : bool
        Whether a logarithmic axis is on offer.
    """

    key: str
    title: str
    says: str
    traces: list[Trace]
    layout: dict[str, Any]
    table: Html
    legend: tuple[Entry, ...] = ()
    views: tuple[str, ...] = ()
    choose: str = "Policy"
    start: int = 0
    height: int = 340
    wide: bool = False
    log: bool = False


# ------------------------------------------------------------------------------------------- data


def safe(text: object) -> str:
    """Return text that plotly.js, which knows some tags, shows as it is."""
    return html.escape(str(text), quote=False)


def values_of(array: Any) -> list[Any]:
    """Return numbers for JSON: five digits, None where there is none.

    Examples
    --------
    >>> values_of([1.0, 0.123456789, float("nan")])
    [1, 0.12346, None]
    """
    return [_plain(value) for value in np.asarray(array).tolist()]


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    short = float(f"{value:.5g}")
    return int(short) if short == int(short) else short


def cut_rounds(rounds: int, rows: int = 1, views: int = 1) -> NDArray[np.int64]:
    """Return where the columns of a map begin and end, few enough for so many rows and views."""
    most = min(BINS, max(_FEWEST, CELLS // max(1, rows * views)))
    columns = min(rounds, most)
    return np.arange(columns + 1) * rounds // columns


def pool(values: Any, cuts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return averages over columns of rounds, the first axis; NaN where there is nothing."""
    numbers = np.asarray(values, dtype=np.float64)
    known = ~np.isnan(numbers)
    sums = np.add.reduceat(np.where(known, numbers, 0.0), cuts[:-1], axis=0)
    counts = np.add.reduceat(known.astype(np.float64), cuts[:-1], axis=0)
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)


def _thin(n: int, at_most: int = POINTS) -> NDArray[np.intp]:
    return np.unique(np.linspace(0, n - 1, min(n, at_most)).round().astype(np.intp))


# ----------------------------------------------------------------------------------------- charts


def axis(
    title: str, *, percent: bool = False, whole: float | None = None, **more: Any
) -> dict[str, Any]:
    """Return an axis in the style of the page: of shares, or of so many whole numbers."""
    return {
        "title": {"text": title, "standoff": 8},
        "automargin": True,
        "gridcolor": "@grid",
        "linecolor": "@grid",
        "zeroline": False,
        **({"tickformat": ".1~%"} if percent else {}),  # ticks may be less than 1 % apart
        **({} if whole is None else {"tickformat": ",d"}),
        **({} if whole is None or whole > _FEW else {"dtick": 1}),  # no halves
        **more,
    }


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

    With ``late`` the axis shows what follows the first tenth, which would hide the rest.
    """
    traces: list[Trace] = []
    legend: list[Entry] = []
    positive = log
    for place, (name, one) in enumerate(series.items()):
        colour = f"@series-{place % SERIES}"
        dash = _DASHES[place // SERIES % len(_DASHES)]
        x, mean, error = _summed_up(one)
        kept = _thin(len(x))
        x, mean, error = x[kept], mean[kept], None if error is None else error[kept]
        positive = positive and bool(len(mean)) and float(mean[-1]) > 0
        if error is not None:
            traces.append(_band(x, mean - error, mean + error, place, colour))
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if markers and len(x) <= 60 else "lines",
                "name": safe(name),
                "x": values_of(x),
                "y": values_of(mean),
                "line": {"color": colour, "width": 2, "dash": dash},
                "meta": {"group": str(place)},
                "hovertemplate": "%{y:.1%}" if percent else "%{y:,.4~g}",
            }
        )
        legend.append(Entry(name, str(place), colour, dash))
    counted = x_title == "round"
    extent = max((float(np.max(one.x)) for one in series.values() if len(one.x)), default=0.0)
    return Chart(
        key=key,
        title=title,
        says=says,
        traces=traces,
        layout={
            "xaxis": axis(x_title, whole=extent),
            "yaxis": axis(y_title, percent=percent, **_late_range(series) if late else {}),
            "hovermode": "x unified",
        },
        table=_curve_table(title, series, percent=percent, counted=counted),
        legend=tuple(legend),
        log=positive,
    )


def _summed_up(
    one: Series,
) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[np.float64] | None]:
    """Return places, mean over runs and standard error, where every run has a value."""
    known = ~np.isnan(one.values).any(axis=0)
    x, values = np.asarray(one.x)[known], one.values[:, known]
    if len(values) < 2:
        return x, values.mean(axis=0), None
    return x, values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))


def _late_range(series: Mapping[str, Series]) -> dict[str, Any]:
    """Return the range of an axis that holds the last nine tenths of all curves and bands."""
    edges = []
    for one in series.values():
        x, mean, error = _summed_up(one)
        after = x >= np.max(one.x) / 10
        around = np.zeros(len(x)) if error is None else error
        edges += [(mean - around)[after], (mean + around)[after]]
    held = np.concatenate(edges) if edges else np.array([])
    if not len(held) or held.min() == held.max():
        return {}
    room = 0.04 * (held.max() - held.min())
    return {"range": values_of([held.min() - room, held.max() + room])}


def _band(x: Any, low: Any, high: Any, place: int, colour: str) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [*values_of(x), *values_of(x[::-1])],
        "y": [*values_of(high), *values_of(low[::-1])],
        "fill": "toself",
        "fillcolor": f"{colour}/0.18",
        "line": {"width": 0},
        "hoverinfo": "skip",
        "meta": {"group": str(place)},
    }


def _curve_table(title: str, series: Mapping[str, Series], *, percent: bool, counted: bool) -> Html:
    """Tell curves by their values at the quarters."""
    places: NDArray[Any] = next(iter(series.values())).x if series else np.array([])
    picked = _thin(len(places), 5)[1:] if len(places) > 4 else np.arange(len(places))
    head = ["curve", *(f"{'round ' if counted else ''}{places[at]:,}" for at in picked)]
    rows = []
    for name, one in series.items():
        x, mean, error = _summed_up(one)
        where = {place: at for at, place in enumerate(x.tolist())}
        row = [name]
        for at in picked:
            found = where.get(places[at].item())
            row.append(
                number(None)
                if found is None
                else number(
                    float(mean[found]),
                    None if error is None else float(error[found]),
                    percent=percent,
                )
            )
        rows.append(row)
    return table(title, head, rows)


def heat_map(
    key: str,
    title: str,
    says: str,
    views: Mapping[str, NDArray[np.float64]],
    cuts: NDArray[np.int64],
    *,
    rows: str,
    unit: str,
    low: float,
    start: int = 0,
) -> Chart:
    """Return a map of rows, such as clients, over rounds; views are of shape (columns, rows)."""
    edges = values_of(cuts + 0.5)
    n_rows = next(iter(views.values())).shape[1]
    top = max(float(np.nanmax(one)) for one in views.values())
    traces = [
        {
            "type": "heatmap",
            "x": edges,
            "y": list(range(n_rows)),
            "z": values_of(one.T),
            "zmin": low,
            "zmax": top,
            "colorscale": [[0, "@scale-low"], [0.5, "@scale-middle"], [1, "@scale-high"]],
            "colorbar": color_bar(unit),
            "meta": {"view": str(place)},
            "hovertemplate": f"round %{{x:,.0f}}<br>{rows} %{{y}}<br>{unit} %{{z:.3~g}}"
            "<extra></extra>",
        }
        for place, one in enumerate(views.values())
    ]
    told = [
        [
            str(row),
            *(number(float(value)) for one in views.values() for value in _ends(one[:, row])),
        ]
        for row in range(min(n_rows, _TOLD_ROWS))
    ]
    names = list(views) if len(views) > 1 else [""]
    head = [rows, *(f"{name} {what}".strip() for name in names for what in ("mean", "last"))]
    return Chart(
        key=key,
        title=title,
        says=says,
        traces=traces,
        layout={
            "xaxis": axis(
                "round", whole=float(cuts[-1]), showgrid=False, range=[edges[0], edges[-1]]
            ),
            "yaxis": axis(rows, whole=n_rows, showgrid=False, range=[n_rows - 0.5, -0.5]),
            "hovermode": "closest",
        },
        table=table(f"{title}: {unit}", head, told),
        views=tuple(views) if len(views) > 1 else (),
        start=start,
        height=min(640, max(280, 120 + 14 * n_rows)),
    )


_TOLD_ROWS: Final = 100  # rows of a map that its table tells


def _ends(values: NDArray[np.float64]) -> tuple[float, float]:
    known = values[~np.isnan(values)]
    return (float(known.mean()), float(known[-1])) if len(known) else (math.nan, math.nan)


def color_bar(title: str, **more: Any) -> dict[str, Any]:
    """Return the scale beside a map."""
    return {
        "title": {"text": title, "side": "right"},
        "thickness": 10,
        "outlinewidth": 0,
        "len": 1.0,
        "xpad": 6,
        **more,
    }


def bars(
    key: str, title: str, says: str, heights: NDArray[np.float64], *, x_title: str, y_title: str
) -> Chart:
    """Return bars, each a share of one, and a line at their mean."""
    places = list(range(len(heights)))
    mean = float(heights.mean())
    traces: list[Trace] = [
        {
            "type": "bar",
            "name": x_title,
            "x": places,
            "y": values_of(heights),
            "marker": {"color": "@series-0"},
            "meta": {"group": "bars"},
            "hovertemplate": f"{x_title} %{{x}}: %{{y:.1%}}<extra></extra>",
        },
        {
            "type": "scatter",
            "mode": "lines",
            "name": "mean",
            "x": [-0.5, len(heights) - 0.5],
            "y": values_of([mean, mean]),
            "line": {"color": "@series-1", "width": 2, "dash": "dash"},
            "meta": {"group": "mean"},
            "hovertemplate": "mean %{y:.1%}<extra></extra>",
        },
    ]
    rows = [[str(at), number(float(height), percent=True)] for at, height in enumerate(heights)]
    return Chart(
        key=key,
        title=title,
        says=says,
        traces=traces,
        layout={
            "xaxis": axis(x_title, whole=len(heights), showgrid=False),
            "yaxis": axis(y_title, percent=True, range=[0, 1]),
            "hovermode": "closest",
            "bargap": 0.2,
        },
        table=table(title, [x_title, y_title], rows),
        legend=(
            Entry(f"each {x_title}", "bars", "@series-0", "block"),
            Entry("mean", "mean", "@series-1", "dash"),
        ),
    )
