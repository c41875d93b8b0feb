"""Link the errata that docstrings cite, such as ``E6``, and check the generated pages.

A problem is a warning, which ends the build with ``--strict``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from mkdocs.plugins import event_priority
from mkdocs.structure.files import Files, InclusionLevel
from mkdocs.utils import get_relative_url

ERRATA = Path(__file__).parent / "errata.md"
LOG = logging.getLogger("mkdocs.hooks")  # a warning here fails a strict build
_GENERATED = ("schedulers/", "channels/", "matchings/", "algorithms/", "experiments/", "api/")
MOST_OBJECTS = 60  # documented on one page, so that it stays readable


@event_priority(-200)  # after literate-nav, which reads them
def on_files(files: Files, **_: Any) -> None:
    """Exclude the navigation lists from the pages."""
    for file in files:
        if file.name == "SUMMARY":
            file.inclusion = InclusionLevel.EXCLUDED


@cache
def explained() -> frozenset[str]:
    """Return the errata that have an anchor on their page."""
    return frozenset(re.findall(r"\{ #(e\d+) \}", ERRATA.read_text(encoding="utf-8")))


def on_page_content(html: str, *, page: Any, **_: Any) -> str:
    """Check a page, and turn the errata in a generated one's running text into links."""
    for complaint in complaints(html):
        LOG.warning("%s: %s", page.file.src_uri, complaint)
    if not page.url.startswith(_GENERATED):
        return html
    target = get_relative_url("errata/", page.url)

    def link(match: re.Match[str]) -> str:
        anchor = match["number"].lower()
        if anchor not in explained():
            return match[0]
        return f'<a href="{target}#{anchor}">{match["number"]}{match["letter"]}</a>'

    # Odd pieces are tags, code and links: only the text between them changes.
    pieces = re.split(r"(<(?:pre|code|a)\b.*?</(?:pre|code|a)>|<[^>]*>)", html, flags=re.DOTALL)
    pattern = re.compile(r"\b(?P<number>E\d{1,2})(?P<letter>[a-i]?)\b")
    pieces[::2] = [pattern.sub(link, piece) for piece in pieces[::2]]
    return "".join(pieces)


def complaints(html: str) -> Iterator[str]:
    """Yield the problems of a page."""
    text = re.sub(r"<(pre|code)\b.*?</\1>", "", html, flags=re.DOTALL)
    if "&gt;&gt;&gt;" in text or re.search(r"<blockquote>\s*<blockquote>", text):
        yield "an example that begins with >>> is not code; docstrings need a section Examples"
    objects = html.count('class="doc doc-object')
    if objects > MOST_OBJECTS:
        yield f"at most {MOST_OBJECTS} objects may be documented on a page, got {objects}"
