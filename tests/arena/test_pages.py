"""What the pages say of the arena: their code runs, and their tables come from a result."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import choosing
from freshband.arena import compete

DOCS = Path(__file__).parent.parent.parent / "docs"


def test_the_code_of_the_page_runs() -> None:
    text = (DOCS / "arena.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    [block] = [each for each in blocks if "--8<--" not in each]
    scope: dict[str, Any] = {}
    exec(compile(block, "arena.md", "exec"), scope)


def test_tables_of_the_choice_are_written_from_a_result() -> None:
    few: dict[str, Any] = {"runs": 2, "rounds": 200, "progress": False}
    result = compete("bayes=random,cucb", ["stationary", "short"], **few)  # a default that loses
    text = choosing.section(result)
    assert "2 policies, 2 families, seed 0, default size" in text
    assert "all families but these:" in text
    assert len(choosing.exceptions(result)) == 2
    assert re.search(r"^- `stationary`: 1\.\d+ times the mean age of `cucb`$", text, re.MULTILINE)
    slow = result.assign(mean_age=result.mean_age.where(result.policy != "cucb"))
    text = choosing.section(slow)
    assert "has at most 1.05 times the best mean age in every family" in text
    assert "cucb was not run on stationary: " in text
    assert np.isnan(slow.mean_age.sel(policy="cucb")).all()


def test_the_page_keeps_what_is_around_its_tables() -> None:
    page = (DOCS / "choosing.md").read_text(encoding="utf-8")
    filled = choosing.fill(page, "| new |\n")
    assert filled.partition(choosing.BEGIN)[0] == page.partition(choosing.BEGIN)[0]
    assert filled.partition(choosing.END)[2] == page.partition(choosing.END)[2]
    assert choosing.fill(filled, "| new |\n") == filled
    with pytest.raises(SystemExit, match="has lost its marks"):
        choosing.fill("no marks", "")
