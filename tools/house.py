"""Measure the package: lines by kind, long files, and blocks of code that occur twice.

Run ``python tools/house.py`` in the repository. ``tests/test_house.py`` holds the limits.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[1] / "src" / "freshband"
LONGEST_FILE = 400
LONGEST_REPEAT = 8


class Line(NamedTuple):
    """A line of code, its text without indentation."""

    path: Path
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(PACKAGE)}:{self.number}"


def kinds(source: str) -> list[str]:
    """Say of each line whether it is code, docstring, comment, import, signature or blank."""
    lines = source.splitlines()
    found = ["code"] * len(lines)
    for index, line in enumerate(lines):
        if not line.strip():
            found[index] = "blank"
        elif line.lstrip().startswith("#"):
            found[index] = "comment"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found[node.lineno - 1 : node.end_lineno] = _same(node, "import")
        elif isinstance(node, ast.FunctionDef):
            first = node.body[0].lineno - 1
            found[node.lineno - 1 : first] = ["signature"] * (first - node.lineno + 1)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            found[node.body[0].lineno - 1 : node.body[0].end_lineno] = _same(
                node.body[0], "docstring"
            )
    return found


def _same(node: ast.stmt, kind: str) -> list[str]:
    return [kind] * ((node.end_lineno or node.lineno) - node.lineno + 1)


def code_lines(path: Path) -> Iterator[Line]:
    """Yield the lines of code of a file, without signatures and lone brackets."""
    source = path.read_text()
    for number, (kind, line) in enumerate(zip(kinds(source), source.splitlines(), strict=True), 1):
        if kind == "code" and any(character.isalnum() for character in line):
            yield Line(path, number, line.strip())


def repeated_blocks(files: list[Path], longest: int = LONGEST_REPEAT) -> list[tuple[Line, Line]]:
    """Find the blocks of more than ``longest`` lines of code that occur in two places."""
    seen: dict[tuple[str, ...], Line] = {}
    found = []
    for path in files:
        lines = list(code_lines(path))
        end = 0  # of the repeat found last: its own tail is not another one
        for start, line in enumerate(lines[:-longest]):
            block = tuple(each.text for each in lines[start : start + longest + 1])
            first = seen.setdefault(block, line)
            overlaps = first.path == path and line.number - first.number <= longest
            if first is not line and not overlaps and start >= end:
                found.append((first, line))
                end = start + longest + 1
    return found


def main() -> None:
    """Print what the package measures."""
    files = sorted(PACKAGE.rglob("*.py"))
    counts: Counter[str] = Counter()
    for path in files:
        counts.update(kinds(path.read_text()))
    print(f"{counts.total():6,} lines of Python in {len(files)} files")
    for kind, number in counts.most_common():
        print(f"{number:6,} {kind}")
    for path in files:
        number = len(path.read_text().splitlines())
        if number > LONGEST_FILE:
            print(f"{path.relative_to(PACKAGE)} has {number} lines; the limit is {LONGEST_FILE}")
    for first, second in repeated_blocks(files):
        print(f"the same code stands in {first} and {second}")


if __name__ == "__main__":
    main()
