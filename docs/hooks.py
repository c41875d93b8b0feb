"""Link the errata that docstrings cite, such as ``E6``, to the page that explains them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from mkdocs.utils import get_relative_url

ERRATA = Path(__file__).parent / "errata.md"


@cache
def explained() -> frozenset[str]:
    """Return the errata that have an anchor on their page."""
    return frozenset(re.findall(r"\{ #(e\d+) \}", ERRATA.read_text(encoding="utf-8")))


def on_page_content(html: str, *, page: Any, **_: Any) -> str:
    """Turn the errata in a generated page's running text into links."""
    if not page.url.startswith(("schedulers/", "channels/", "matchings/", "api/")):
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
