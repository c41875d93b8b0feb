"""Reports, parsed."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import xarray as xr

from freshband._sealed import save_sealed
from freshband.reporting.report import write_report

VOID = {"meta", "link", "br", "img", "input"}


class Document(HTMLParser):
    """A page, parsed: every element is closed, in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        (self.scripts if self.open and self.open[-1] == "script" else self.words).append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    @property
    def figures(self) -> dict[str, Any]:
        """The charts' data, by the figure they belong to."""
        found: dict[str, Any] = json.loads(self.scripts[0])
        return found

    def all(self, tag: str, **attributes: str) -> list[dict[str, str | None]]:
        wanted = attributes.items()
        return [own for name, own in self.elements if name == tag and wanted <= own.items()]


def report(source: Path) -> Document:
    return Document(write_report(source).path.read_text(encoding="utf-8"))


def report_of(result: xr.Dataset, folder: Path) -> Document:
    save_sealed(result, folder / "one.nc")
    return report(folder)
