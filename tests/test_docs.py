"""The code on the pages runs, and every erratum has a check."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parent.parent / "docs"
ERRATA = DOCS / "errata.md"
CHAPTERS = sorted((DOCS / "theory").glob("*.md"))


def code(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def errata() -> dict[str, str]:
    text = ERRATA.read_text(encoding="utf-8")
    parts = re.split(r"^## (E\d+) · .* \{ #e\d+ \}$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_erratum_is_listed_once_with_a_check() -> None:
    found = errata()
    assert list(found) == [f"E{i}" for i in range(1, 22)]
    text = ERRATA.read_text(encoding="utf-8")
    table = text.partition("## E1 ")[0]
    for name, section in found.items():
        assert f"## {name} ·" in text
        assert f"{{ #{name.lower()} }}" in text
        assert table.count(f"[{name}](#{name.lower()})") == 1
        assert len(code(section)) == 1, name
        assert "assert" in code(section)[0], name


@pytest.mark.parametrize(("name", "section"), errata().items(), ids=list(errata()))
def test_erratum(name: str, section: str) -> None:
    for block in code(section):
        scope: dict[str, Any] = {}
        exec(compile(block, f"errata.md, {name}", "exec"), scope)


@pytest.mark.parametrize("page", CHAPTERS, ids=[page.stem for page in CHAPTERS])
def test_chapter(page: Path) -> None:
    scope: dict[str, Any] = {}
    for block in code(page.read_text(encoding="utf-8")):  # later blocks go on from earlier ones
        exec(compile(block, page.name, "exec"), scope)


@pytest.mark.parametrize("page", [*CHAPTERS, ERRATA], ids=lambda page: page.stem)
def test_pictures_exist(page: Path) -> None:
    for target in re.findall(r"!\[.*?\]\((.*?)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).is_file(), target
