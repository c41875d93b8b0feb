"""``freshband report``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.running import Shell
from tests.reporting.results import fill

SIMULATE = ("simulate", "--policies", "random", "--rounds", 50, "--runs", 2, "--format", "json")


def test_a_folder_with_results_becomes_a_page(shell: Shell) -> None:
    fill(Path("results"))
    done = shell("report", "results")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("wrote results/report.html: 3 results, ")
    assert Path("results/report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_one_file_becomes_a_page_of_any_name(shell: Shell) -> None:
    assert shell(*SIMULATE, "--out", "one.nc").code == 0
    done = shell("report", "one.nc", "--out", "pages/mine.html")
    assert done.out.startswith("wrote pages/mine.html: 1 result, ")


def test_what_is_left_out_is_told(shell: Shell) -> None:
    assert shell(*SIMULATE, "--out", "one.nc").code == 0
    Path("broken.nc").write_text("nothing")
    done = shell("report", ".")
    assert done.code == 0
    assert done.err == "note: left out: broken.nc is damaged or not a result\n"


def test_nothing_to_show(shell: Shell) -> None:
    assert shell.refuses("report", ".") == ". holds no result, no file *.nc"
    assert "cannot read nowhere" in shell.refuses("report", "nowhere")
    assert list(Path.cwd().iterdir()) == []


def test_without_plotly(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    assert shell.refuses("report", ".") == (
        "a report needs plotly; install it with: pip install 'freshband[report]'"
    )
