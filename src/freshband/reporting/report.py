"""A report: one HTML file that shows what result files hold, on its own and without a network.

Examples
--------
>>> import freshband, tempfile
>>> from pathlib import Path
>>> folder = Path(tempfile.mkdtemp())
>>> result = freshband.simulate("stationary", "random,cucb", rounds=200, runs=3)
>>> freshband.save_result(result, folder / "mine.nc")
>>> write_report(folder).path.name
'report.html'
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple

from freshband import __version__
from freshband.errors import FileError, FreshbandError, ParameterError
from freshband.files import check_writable, replacing
from freshband.parameters import file_path
from freshband.reporting.page.charts import Chart, Entry
from freshband.reporting.page.markup import Html, join, tag
from freshband.reporting.page.parts import Part, Picture
from freshband.reporting.page.pictures import load_picture, show_pictures
from freshband.reporting.sources import find_pictures, find_results, name_result, show_result

__all__ = ["Written", "write_report"]

_AOI: Final = (
    "A client's age of information is the number of rounds since its last update got through, that "
    "round included: 1 is as fresh as can be, and every round that fails adds one."
)
_REGRET: Final = (
    "A policy's regret is the age all its clients piled up beyond that of an oracle which knows "
    "how good the channels are and meets the same air: the price of having to learn."
)
_BANDS: Final = (
    "Curves are means over independent runs and bands are one standard error; the buttons above a "
    "chart show and hide its curves."
)
_CONFIGURATION: Final = "Configuration and environment"


class Written(NamedTuple):
    """A report that was written: where, of which results and pictures, and why others are not."""

    path: Path
    shown: list[Path]
    left_out: list[str]
    pictures: list[Path]


def write_report(
    source: str | os.PathLike[str], out: str | os.PathLike[str] | None = None
) -> Written:
    """Write a report of a result file, or of all in a folder and the folders in it.

    Parameters
    ----------
    source : path
        A file that a command of freshband wrote, or a folder with such files: results of
        ``simulate``, ``train``, ``compare`` and ``reproduce``, verdicts, runs that are not
        finished, pictures.
    out : path, optional
        The page to write; by default ``report.html`` in the folder.

    Raises
    ------
    FileError
        If there is no result to show, or the page cannot be written.
    FreshbandError
        If plotly is not installed, or PyTorch is not for results of training.
    """
    library = _plotly()
    root = file_path("source", source)
    folder = root if root.is_dir() else root.parent
    target = check_writable(folder / "report.html" if out is None else out)
    if target.suffix.lower() not in (".html", ".htm"):
        raise ParameterError(f"the name of a report must end in .html, got {target.name!r}")
    parts, shown, left_out = _gather(root)
    if not parts:
        what = "no file *.nc, no run, no verdicts and no picture"
        raise FileError(left_out[0] if left_out else f"{root} holds no result: {what}")
    page = _page(name_result(root, root), parts, left_out, library)
    with replacing(target) as scratch:
        scratch.write_text(page, encoding="utf-8", newline="\n")
    pictures = [picture.path for part in parts for picture in part.pictures]
    return Written(target, shown, left_out, pictures)


def _gather(root: Path) -> tuple[list[Part], list[Path], list[str]]:
    """Return what there is to show, the results it comes from, and why others are left out."""
    parts, shown, left_out = [], [], []
    for path in find_results(root):
        try:
            parts.append(show_result(path, name_result(path, root)))
            shown.append(path)
        except FileError as error:
            left_out.append(str(error))
    known = {picture.path for part in parts for picture in part.pictures}
    loose: list[Picture] = []
    for path in find_pictures(root):
        if path not in known:
            try:
                loose.append(load_picture(path, name_result(path, root)))
            except FileError as error:
                left_out.append(str(error))
    return [*parts, *([show_pictures(loose)] if loose else [])], shown, left_out


def _plotly() -> str:
    """Return the library that draws in the browser; the package ships only the whole of it."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise FreshbandError(
            "a report needs plotly; install it with: pip install 'freshband[report]'"
        ) from None
    text: str = get_plotlyjs()
    return text


# ------------------------------------------------------------------------------------------- page


def _page(name: str, parts: Sequence[Part], left_out: Sequence[str], library: str) -> str:
    figures = {
        f"r{place}-{chart.key}": {
            "traces": chart.traces,
            "layout": chart.layout,
            "height": chart.height,
        }
        for place, part in enumerate(parts)
        for chart in part.charts
    }
    scripts = [_script(library), _script(_read("page.js"))]
    allowed = " ".join(f"'sha256-{_digest(text)}'" for text in scripts)
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{name}: freshband report"),
        tag("style", Html(_read("page.css"))),
    )
    body = tag(
        "body",
        tag("a", "Skip to the results", href="#results", class_="skip"),
        _header(name, parts, left_out),
        tag(
            "div",
            _contents(parts),
            tag(
                "main",
                join(_section(place, part) for place, part in enumerate(parts)),
                id="results",
                tabindex=-1,
            ),
            class_="layout",
        ),
        tag("footer", f"Written by freshband {__version__}. Charts: plotly.js, MIT licence."),
        tag("script", Html(_json(figures)), type="application/json", id="figures"),
        join(tag("script", Html(text)) for text in scripts),
    )
    return "<!doctype html>\n" + tag("html", head, "\n", body, lang="en") + "\n"


def _read(name: str) -> str:
    return (files("freshband.reporting.page") / name).read_text(encoding="utf-8")


def _script(text: str) -> str:
    """Return a script that cannot end its element early, with line ends as the browser has them."""
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("</script", "<\\/script")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _json(value: Any) -> str:
    """Return JSON that is safe inside an element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _header(name: str, parts: Sequence[Part], left_out: Sequence[str]) -> Html:
    kinds = [part.kind.lower() for part in parts]
    counts = {kind: kinds.count(kind) for kind in kinds} | {
        "picture": sum(len(part.pictures) for part in parts)
    }
    counted = ", ".join(_count(number, kind) for kind, number in counts.items() if number)
    terms = {"Age of information (AoI)": _AOI, "Regret": _REGRET, "Curves and bands": _BANDS}
    return tag(
        "header",
        tag(
            "div",
            tag("div", tag("p", "freshband report", class_="brand"), tag("h1", name)),
            tag("button", "Dark colours", id="theme", type="button", hidden=True),
            class_="top",
        ),
        tag("p", f"{counted}.", class_="lead"),
        tag(
            "dl",
            join(tag("div", tag("dt", term), tag("dd", text)) for term, text in terms.items()),
            class_="terms",
        ),
        join(tag("p", f"Left out: {text}", class_="note") for text in left_out),
        tag("noscript", tag("p", "Charts need JavaScript; the tables do not.", class_="note")),
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number > 1 else ''}"


def _contents(parts: Sequence[Part]) -> Html:
    entries = join(
        tag(
            "li",
            tag("a", part.title, href=f"#r{place}"),
            tag(
                "ul",
                join(
                    tag("li", tag("a", text, href=f"#r{place}-{key}"))
                    for key, text in [
                        *((chart.key, chart.title) for chart in part.charts),
                        *([("configuration", _CONFIGURATION)] if part.settings else []),
                    ]
                ),
            ),
        )
        for place, part in enumerate(parts)
    )
    inside = tag("details", tag("summary", "Contents"), tag("ul", entries), open=True)
    return tag("nav", inside, aria_label="Contents")


def _section(place: int, part: Part) -> Html:
    anchor = f"r{place}"
    return tag(
        "section",
        tag("p", part.kind, class_="kind"),
        tag("h2", part.title, id=f"{anchor}-title"),
        tag("p", part.about, class_="lead"),
        tag("div", part.summary, class_="numbers"),
        join(_picture(picture) for picture in part.pictures),
        tag(
            "div",
            join(_figure(anchor, chart) for chart in part.charts),
            class_="charts",
        ),
        tag("div", join(part.tables), class_="numbers"),
        join(tag("p", note, class_="note") for note in part.notes),
        _configuration(anchor, part),
        id=anchor,
        class_="part",
        aria_labelledby=f"{anchor}-title",
    )


def _configuration(anchor: str, part: Part) -> Html:
    again = tag("p", f"{part.again}: ", tag("code", part.repeat)) if part.repeat else None
    if part.settings is None:
        return join([again])
    return join(
        [
            tag("h3", _CONFIGURATION, id=f"{anchor}-configuration"),
            again,
            tag(
                "div",
                tag("details", tag("summary", "Configuration"), part.settings),
                tag("details", tag("summary", "Environment"), part.environment),
                class_="facts",
            ),
        ]
    )


def _picture(picture: Picture) -> Html:
    return tag(
        "figure",
        tag("img", src=picture.data, alt=picture.says),
        tag("figcaption", picture.path.name),
        class_="picture",
    )


def _figure(anchor: str, chart: Chart) -> Html:
    name = f"{anchor}-{chart.key}"
    return tag(
        "figure",
        tag("h3", chart.title, id=f"{name}-title"),
        tag("p", chart.says),
        _controls(chart),
        tag(
            "div",
            class_="plot",
            role="group",
            aria_label=f"{chart.title}. {chart.says} The table below holds the values.",
            style=f"min-height: {chart.height}px",
        ),
        tag(
            "details",
            tag("summary", f"{chart.title} as a table"),
            tag("div", chart.table, class_="numbers"),
        ),
        id=name,
        class_="chart wide" if chart.wide else "chart",
        aria_labelledby=f"{name}-title",
    )


def _controls(chart: Chart) -> Html | None:
    menu = (
        tag(
            "label",
            f"{chart.choose} ",
            tag(
                "select",
                join(
                    tag("option", name, value=at, selected=at == chart.start)
                    for at, name in enumerate(chart.views)
                ),
            ),
            class_="choose",
        )
        if chart.views
        else None
    )
    buttons = [_button(entry) for entry in chart.legend] if _is_choice(chart) else []
    log = tag("button", "Log scale", type="button", data_log=True, aria_pressed="false")
    if menu is None and not buttons and not chart.log:
        return None
    return tag(
        "div",
        menu,
        join(buttons),
        log if chart.log else None,
        class_="controls",
        role="group",
        aria_label=f"What is shown: {chart.title}",
    )


def _is_choice(chart: Chart) -> bool:
    """Whether there is anything to hide: the only curve of a chart had better stay."""
    return len(chart.legend) > 1 or any(e.mark in ("diamond", "cross") for e in chart.legend)


def _button(entry: Entry) -> Html:
    colour = entry.colour.removeprefix("@")
    swatch = tag(
        "span",
        class_=f"swatch {entry.mark}",
        style=f"--colour: var(--{colour})",
        aria_hidden="true",
    )
    return tag(
        "button", swatch, entry.label, type="button", data_group=entry.group, aria_pressed="true"
    )
