"""The page about fleets says what the code does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from freshband.fleet import _doubts
from freshband.matching.base import match_links
from freshband.matching.base import registry as matchings
from freshband.schedulers.base import registry as schedulers
from freshband.schedulers.base import select_available, update_late
from tests.theory.margins import needs_compiler

PAGE = (Path(__file__).parent.parent / "docs" / "fleet.md").read_text(encoding="utf-8")


def rows(head: str) -> dict[str, list[str]]:
    """The cells of a table by the name in the first column."""
    _, _, rest = PAGE.partition(f"\n| {head} |")
    lines = rest.partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0].strip("`"): row[1:] for row in cells}


def said(*claims: bool) -> list[str]:
    return ["yes" if claim else "no" for claim in claims]


def test_what_schedulers_can_do() -> None:
    table = rows("scheduler")
    assert list(table) == list(schedulers)
    for name, cells in table.items():
        kind = schedulers[name]
        state = type(kind().start(2, 5, np.random.default_rng(0), 1000))
        links, late, available = (
            kind.start_links is not None,
            update_late.knows(state),
            select_available.knows(state),
        )
        assert cells == said(links, late, available, kind.grows), name


def test_what_matchings_can_do() -> None:
    table = rows("matching")
    assert list(table) == list(matchings)
    for name, cells in table.items():
        assert cells[1:] == said(match_links.knows(type(matchings[name]().start(2)))), name


def test_how_clients_die_and_return() -> None:
    _, _, rest = PAGE.partition("\n| dead clients |")
    assumed = rest.partition("\n")[0]
    assert f"dies with probability 1/{1 / _doubts._DEATH:.0f} per round" in assumed
    assert f"returns with probability {_doubts._RETURN}/`n`" in assumed


@needs_compiler
def test_the_code_on_the_page_runs() -> None:
    scope: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    own = [block for block in blocks if not block.startswith("--8<--")]
    assert len(own) == 3
    for block in own:
        exec(compile(block, "fleet.md", "exec"), scope)
