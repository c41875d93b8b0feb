"""Results for other programs: JSON with a schema, CSV and LaTeX; help that fits a terminal."""

from __future__ import annotations

import csv
import io

import pytest
import typer

from freshband import __version__
from freshband.cli.app import app
from tests.cli.running import Shell

SMALL = ["--rounds", 60, "--runs", 2, "--quiet"]
SIMULATE = ["simulate", "--policies", "cucb,cucb+aa", *SMALL]


def test_json_says_which_schema_it_has(shell: Shell) -> None:
    assert shell.answer(*SIMULATE)["schema"] == "freshband simulate 1"
    found = shell.answer("bounds", "--policies", "cucb", *SMALL)
    assert found["schema"] == "freshband bounds 1"


def test_csv_has_the_numbers_of_json(shell: Shell) -> None:
    policies = shell.answer(*SIMULATE)["policies"]
    done = shell(*SIMULATE, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert [row["policy"] for row in rows] == list(policies)
    for row in rows:
        for name, value in policies[row["policy"]].items():
            if name in ("growth_exponent", "rounds_per_second"):
                assert name in row
                continue
            for key in ("mean", "se"):
                text = row[f"{name}_{key}"]
                assert (float(text) if text else None) == (value[key] if value else None)


def test_bounds_and_a_training_run_have_rows_too(shell: Shell) -> None:
    done = shell("bounds", "--policies", "cucb", *SMALL, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert {row["result"] for row in rows} >= {"Theorem 2", "Theorem 4"}
    run = ["train", "--model", "mlp", "--clients", 2, "--rounds", 4, "--quiet", "--format", "csv"]
    (row,) = csv.DictReader(io.StringIO(shell(*run).out))
    assert float(row["final_accuracy"]) > 0


def test_latex_is_the_table(shell: Shell) -> None:
    lines = shell(*SIMULATE, "--format", "latex").out.splitlines()
    assert lines[0].startswith(r"\begin{tabular}{lrr")
    assert lines[1].startswith(r"policy & regret & vs rotate")
    assert lines[2] == r"\hline"
    assert len(lines) == 6
    assert all(line.endswith(r" \\") for line in (lines[1], *lines[3:5]))
    assert all(line.count(" & ") == lines[1].count(" & ") for line in lines[3:5])
    assert r"$\pm$" in lines[3]
    plain = shell("bounds", "--policies", "cucb", *SMALL, "--format", "latex").out
    assert r"says\_nothing" in plain


def test_the_version_is_printed(shell: Shell) -> None:
    assert shell("--version").out == f"freshband {__version__}\n"


@pytest.mark.parametrize("kind", ["bash", "zsh", "fish"])
def test_shells_can_complete(shell: Shell, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_FRESHBAND_COMPLETE", f"source_{kind}")
    script = shell("").out
    assert f"complete_{kind}" in script
    monkeypatch.setenv("_FRESHBAND_COMPLETE", f"complete_{kind}")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "freshband sim")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    monkeypatch.setenv("COMP_WORDS", "freshband sim")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert "simulate" in shell("").out


def commands() -> list[list[str]]:
    group = typer.main.get_command(app)
    found: list[list[str]] = [[]]
    for name, command in getattr(group, "commands", {}).items():
        found.append([name])
        found += [[name, below] for below in getattr(command, "commands", {})]
    return found


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_help_fits_80_columns(
    shell: Shell, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    done = shell(*command, "--help")
    assert done.code == 0
    assert [line for line in done.out.splitlines() if len(line) > 80] == []
    assert "…" not in done.out  # nothing is cut off


def test_every_result_is_described() -> None:
    """The page about the command line lists the schemas."""
    from pathlib import Path

    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    for name in ("simulate", "compare", "train", "bounds", "reproduce"):
        assert f"`freshband {name} 1`" in page
