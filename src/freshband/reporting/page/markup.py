"""HTML in which text cannot turn into markup: whatever is not `Html` is escaped."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence

__all__ = ["Html", "join", "number", "table", "tag"]

_VOID = frozenset({"img", "link", "meta"})
_MISSING = "—"


class Html(str):
    """Text that is markup already; made by `tag` and `join` alone."""

    __slots__ = ()


def tag(name: str, /, *children: str | None, **attributes: str | int | bool | None) -> Html:
    """Return an element; children that are not `Html`, and all attributes, are escaped.

    Underscores in names of attributes stand for hyphens, one at the end for nothing; True gives
    an attribute without value, False and None give none.

    Examples
    --------
    >>> tag("p", "a < b", class_="note", aria_hidden="true")
    '<p class="note" aria-hidden="true">a &lt; b</p>'
    """
    shown = "".join(
        f" {key.rstrip('_').replace('_', '-')}"
        + ("" if value is True else f'="{html.escape(str(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Html(f"<{name}{shown}>")
    return Html(f"<{name}{shown}>{join(children)}</{name}>")


def join(children: Iterable[str | None]) -> Html:
    """Return children one after the other, escaped unless they are `Html`.

    Examples
    --------
    >>> join([tag("b", "x"), "<i>"])
    '<b>x</b>&lt;i&gt;'
    """
    return Html(
        "".join(
            child if isinstance(child, Html) else html.escape(child)
            for child in children
            if child is not None
        )
    )


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    """Return a table whose first column names the rows; it scrolls on its own when it is wide."""
    columns = join(tag("th", text, scope="col") for text in head)
    body = join(
        tag("tr", tag("th", row[0], scope="row"), join(tag("td", text) for text in row[1:]))
        for row in rows
    )
    above = tag("caption", tag("span", caption))
    inner = tag("table", above, tag("thead", tag("tr", columns)), tag("tbody", body))
    return tag("div", inner, class_="scroll", role="group", tabindex=0, aria_label=caption)


def number(value: float | None, error: float | None = None, *, percent: bool = False) -> str:
    """Return a number for readers, with its standard error where there is one.

    Examples
    --------
    >>> number(71244.3, 210.2), number(0.9634, percent=True), number(float("nan")), number(3)
    ('71,244 ± 210', '96.3 %', '—', '3')
    """
    if value is None or math.isnan(value):
        return _MISSING
    scale, unit = (100, " %") if percent else (1, "")
    plain = 1 if percent else _digits(value)
    error = 0.0 if error is None or math.isnan(error) else scale * error
    if error < 0.0005:
        return f"{scale * value:,.{plain}f}{unit}".replace("-", "−")
    most = 1 if percent else 3
    digits = min(most, max(0, 1 - math.floor(math.log10(error))))  # two digits of the error
    return f"{scale * value:,.{digits}f} ± {error:,.{digits}f}{unit}".replace("-", "−")


def _digits(value: float) -> int:
    size = abs(value)
    if value == int(value) or size >= 1000:
        return 0
    return 1 if size >= 100 else 2 if size >= 1 else 3
