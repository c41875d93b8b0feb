"""Tables on a terminal: what a narrow one leaves out is said, and nothing is cut off."""

from __future__ import annotations

import re

import pytest

from freshband.cli._tables import make_table, open_console, print_policies, print_written

COLUMNS = {
    "policy": ["random", "glr-cucb"],
    "regret": ["6,280 ± 413", "774 ± 29"],
    "Jain": ["1.000", "0.998"],
    "delay": ["—", "61"],
}


def print_at(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    monkeypatch.setenv("FORCE_COLOR", "1")  # what makes rich take a pipe for a terminal
    monkeypatch.setenv("COLUMNS", str(width))
    print_policies("title", "a caption", COLUMNS, ["delay", "Jain", "unknown"])
    return " ".join(re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).split())


def test_a_wide_terminal_shows_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = print_at(100, monkeypatch, capsys)
    assert all(heading in out for heading in COLUMNS)
    assert "no room" not in out


def test_columns_are_left_out_in_the_order_given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "no room for delay" in print_at(38, monkeypatch, capsys)
    out = print_at(30, monkeypatch, capsys)
    assert "6,280 ± 413" in out
    assert "a caption; no room for delay, Jain" in out


def test_a_pipe_is_wide(capsys: pytest.CaptureFixture[str]) -> None:
    open_console().print(make_table("t", ["a", "b"], [["x" * 90, "y" * 90]], right=["b"]))
    assert f"│ {'x' * 90} │ {'y' * 90} │" in capsys.readouterr().out


def test_files_that_were_not_written_are_not_named(
    capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("long" * 30) / "it.nc"
    print_written([None, path])
    assert capsys.readouterr().out == f"wrote {path}\n"
