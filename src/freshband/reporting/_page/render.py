"""The page as HTML, from templates in which all text is escaped."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from freshband import __version__
from freshband.reporting._numbers import counted
from freshband.reporting._page.parts import Part


def render_page(name: str, parts: Sequence[Part], left_out: Sequence[str]) -> str:
    """Return the page; its content security policy allows the two scripts it holds, by digest."""
    environment = Environment(
        loader=PackageLoader("freshband.reporting._page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    environment.filters["digest"] = _digest
    return environment.get_template("page.html.j2").render(
        name=name,
        parts=parts,
        left_out=left_out,
        counts=_count(parts),
        version=__version__,
        style=_read("page.css"),
        scripts=[_script(get_plotlyjs()), _script(_read("page.js"))],
        figures={
            f"r{place}-{chart.key}": chart.to_json()
            for place, part in enumerate(parts)
            for chart in part.charts
        },
    )


def _count(parts: Sequence[Part]) -> str:
    counts = Counter(part.kind.lower() for part in parts)
    counts["picture"] = sum(len(part.pictures) for part in parts)
    return ", ".join(counted(count, kind) for kind, count in counts.items() if count)


def _read(name: str) -> str:
    return (files("freshband.reporting._page") / name).read_text(encoding="utf-8")


def _script(text: str) -> str:
    """Return a script that cannot end its element early, with line ends as the browser has them."""
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    return plain.replace("</script", "<\\/script")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
