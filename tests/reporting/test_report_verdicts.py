"""Reports: verdicts and pictures beside the results."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from freshband._sealed import save_sealed
from freshband.errors import FileError
from freshband.reporting.report import write_report
from tests.reporting.pages import Document, report
from tests.reporting.results import (
    NASTY,
    make_simulation,
)

# --------------------------------------------------------------------------- verdicts and pictures

CLAIM = {
    "what": "A below B",
    "paper": "below",
    "ours": 12.5,
    "low": float("nan"),
    "high": float("nan"),
    "p": float("nan"),
    "unit": "regret",
    "verdict": "reproduced",
    "why": "",
}


def report_of_claims(claims: list[dict[str, Any]], folder: Path) -> Document:
    told = {"claims": [{**CLAIM, **claim} for claim in claims], "made": {}}
    (folder / "fig2a-quick.json").write_text(json.dumps(told), encoding="utf-8")
    return report(folder)


def test_verdicts_are_told_with_what_was_measured(tmp_path: Path) -> None:
    doubted = {"what": "C above D", "low": 11.0, "high": 14.0, "p": 0.2}
    doubted |= {"verdict": "not reproduced", "why": "linear"}
    document = report_of_claims([{}, doubted], tmp_path)
    assert "1 experiment." in document.text
    assert "A below B reproduced 12.5 regret - below" in document.text
    assert "C above D not reproduced 12.5 regret [11.0, 14.0] 0.200 below linear" in document.text
    assert "scale quick; reproduced: 1, not reproduced: 1" in document.text
    assert "freshband reproduce fig2a --scale quick --out" in document.text


def test_verdicts_stand_before_the_results_they_sum_up(tmp_path: Path) -> None:
    save_sealed(make_simulation(), tmp_path / "air.nc")
    report_of_claims([{}], tmp_path)
    shown = write_report(tmp_path).shown
    assert [path.name for path in shown] == ["fig2a-quick.json", "air.nc"]


def test_verdicts_cannot_turn_into_markup(tmp_path: Path) -> None:
    document = report_of_claims([{"what": NASTY[0], "why": NASTY[1], "unit": NASTY[2]}], tmp_path)
    assert len(document.all("script")) == 3
    assert not document.all("img")
    for text in NASTY:
        assert text in document.text


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "[1]", '[{"verdict": "holds"}]', "[{}]"])
def test_damaged_verdicts_are_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "fig2a-quick.json").write_text(text, encoding="utf-8")
    with pytest.raises(FileError, match=r"fig2a-quick\.json (is damaged|holds neither|is not a)"):
        write_report(tmp_path)


def test_files_of_others_are_passed_over(tmp_path: Path) -> None:
    save_sealed(make_simulation(), tmp_path / "one.nc")
    (tmp_path / "package.json").write_text("{}", encoding="utf-8")
    (tmp_path / "run.json").write_text("{}", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    (tmp_path / ".hidden.png").write_bytes(b"being written")
    written = write_report(tmp_path)
    assert (written.shown, written.left_out) == ([tmp_path / "one.nc"], [])
    assert written.pictures == []


def test_pictures_are_shown_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "air.svg").write_text("<svg onload='alert(1)'/>", encoding="utf-8")
    (tmp_path / "regret-by-policy-quick.png").write_bytes(b"first")
    document = report_of_claims([{}], tmp_path)
    pictures = [
        base64.b64decode((own["src"] or "").partition(",")[2]) for own in document.all("img")
    ]
    assert pictures == [b"first", b"<svg onload='alert(1)'/>"]
    assert [own["alt"] for own in document.all("img")] == [
        "Regret of the paper's policies and of ours",
        "air.svg",
    ]
    assert "1 experiment, 2 pictures." in document.text


def test_pictures_too_large_for_a_page_are_named(tmp_path: Path) -> None:
    save_sealed(make_simulation(), tmp_path / "one.nc")
    (tmp_path / "huge.png").write_bytes(bytes(9_000_000))
    (told,) = write_report(tmp_path).left_out
    assert told == f"{tmp_path / 'huge.png'} is too large for a page: 9 MB"
