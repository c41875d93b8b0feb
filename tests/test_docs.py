"""The code on the pages runs, every erratum has a check, and pages can be read."""

from __future__ import annotations

import importlib.util
import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
import markdown
import pytest

from tools.notebook import NOTEBOOKS, execute

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


# ------------------------------------------------------------------------------------- API pages


def docstrings(thing: griffe.Object) -> Iterator[griffe.Docstring]:
    """Every docstring of a module, a class or what is in them, as the documentation reads them."""
    if thing.docstring is not None:
        yield thing.docstring
    for member in thing.members.values():
        if not member.is_alias:
            yield from docstrings(member)  # type: ignore[arg-type]


def test_examples_are_code_on_the_pages() -> None:
    """Elsewhere in a docstring Markdown takes ``>>>`` for a quotation in a quotation."""
    package = griffe.load("freshband", search_paths=[str(DOCS.parent / "src")])
    found = list(docstrings(package))  # type: ignore[arg-type]
    assert len(found) > 500
    for docstring in found:
        for section in docstring.parse("numpy", warnings=False):
            if section.kind is griffe.DocstringSectionKind.text:
                assert ">>> " not in section.value, docstring.parent


@pytest.fixture(scope="module")
def hooks() -> Any:
    spec = importlib.util.spec_from_file_location("hooks", DOCS / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("text", "complaints"),
    [
        (">>> 1 + 1\n2", 1),
        ("see &gt;&gt;&gt; 1 + 1", 1),
        ("> a quotation", 0),
        ("    >>> 1 + 1\n    2", 0),
        ("`>>>` is Python's prompt", 0),
        ('<div class="doc doc-object"></div>' * 61, 1),
        ('<div class="doc doc-object"></div>' * 60, 0),
    ],
)
def test_the_build_complains_of_pages_nobody_can_read(
    hooks: Any, text: str, complaints: int
) -> None:
    assert len(list(hooks.complaints(markdown.markdown(text)))) == complaints


def test_the_architecture_page_names_what_is_there() -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[a-z_0-9-]+/)*[a-z_0-9-]+(?:/|\.py))`", page))
    assert len(named) > 30
    for name in named:
        root, package = DOCS.parent, DOCS.parent / "src" / "freshband"
        places = (root, package, package / "federated", package / "schedulers")
        assert any((place / name).exists() for place in places), name


# ------------------------------------------------------------------------- quickstart, notebooks


def test_the_quickstart_prints_what_its_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(DOCS.parent / "examples" / "quickstart.py"), run_name="__main__")
    page = (DOCS / "quickstart.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        line.split() for line in shown.splitlines()
    ]
    assert (tmp_path / "quickstart.png").stat().st_size > 0


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_still_says_what_it_says(path: Path) -> None:
    """If this fails because results changed, ``python tools/notebook.py`` executes it again."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    pictures = 0
    for cell, outputs in execute(notebook):
        assert len(outputs) == len(cell["outputs"])
        for now, kept in zip(outputs, cell["outputs"], strict=True):
            found, saved = now.get("data", now), kept.get("data", kept)
            if "image/png" in saved:  # drawn by another version of matplotlib, it may differ
                pictures += "image/png" in found
            else:
                assert found.get("text", found.get("text/plain")) == saved.get(
                    "text", saved.get("text/plain")
                )
    assert pictures >= 2
