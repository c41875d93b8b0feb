"""``freshband report``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import typer

from freshband.cli.app import app
from freshband.federated.runs import start_run
from freshband.federated.settings import Training
from tests.cli.running import Shell
from tests.reporting.results import fill

TINY = ("--model", "mlp", "--clients", 3, "--rounds", 3, "--quiet")
SHORT = ("--policies", "random", "--rounds", 50, "--runs", 2, "--quiet")
# A command, the file its option names, and what the page makes of all it wrote.
COMMANDS = {
    "simulate": (("simulate", *SHORT, "--out", "made/it.nc", "--plot", "made/it.png"), 1, 1),
    "simulate, another name": (("simulate", *SHORT, "--out", "made/it.result"), 1, 0),
    "simulate, one point": (("simulate", *SHORT, "--points", 1, "--out", "made/it.nc"), 1, 0),
    "train": (("train", *TINY, "--out", "made/run", "--plot", "made/it.svg"), 1, 1),
    "train, into the folder": (("train", *TINY, "--out", "made"), 1, 0),
    "compare": (
        ("compare", "--policies", "random", "--runs", 2, *TINY, "--out", "made/it.nc"), 1, 0,
    ),
    "bounds": (("bounds", "--rounds", 50, "--runs", 2, "--quiet", "--plot", "made/it.png"), 0, 1),
    "show": (("show", "--rounds", 50, "--out", "made/it.jpg"), 0, 1),
}  # fmt: skip
SIMULATE = ("simulate", "--policies", "random", "--rounds", 50, "--runs", 2, "--format", "json")


def test_a_folder_with_results_becomes_a_page(shell: Shell) -> None:
    fill(Path("results"))
    done = shell("report", "results")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("wrote results/report.html: 3 results, ")
    assert Path("results/report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize("name", COMMANDS)
def test_what_a_command_writes_can_be_reported(shell: Shell, name: str) -> None:
    command, results, pictures = COMMANDS[name]
    made = shell(*command)
    assert made.code == 0, made.err
    done = shell("report", "made")
    assert (done.code, done.err) == (0, "")
    told = [f"{results} result"] * results + [f"{pictures} picture"] * pictures
    assert done.out.startswith(f"wrote made/report.html: {', '.join(told)}, ")


def test_every_command_that_writes_is_tried() -> None:
    """Others are in tests/arena and tests/experiments, or write no file that shows something."""
    known = {name for name in typer.main.get_command(app).commands}  # type: ignore[attr-defined]
    tried = {str(command[0]) for command, *_ in COMMANDS.values()}
    elsewhere = {"arena", "reproduce"}
    assert known - tried - elsewhere == {"check", "export", "flower", "list", "report", "serve"}


def test_a_run_that_is_not_finished(shell: Shell) -> None:
    settings = Training(model="mlp", clients=3, rounds=5, scheduler="random")
    with start_run(settings, "made/run", checkpoint_every=2) as run:
        for record in run:
            if record.round == 3:
                run.stop()
    for source in ("made", "made/run", "made/run/run.json"):
        assert shell("report", source, "--out", "it.html").code == 0
        page = Path("it.html").read_text(encoding="utf-8")
        assert "3 of 5 rounds" in page
        assert "The run is not finished" in page
        assert "freshband train --resume made/run" in page


def test_a_run_before_its_first_round(shell: Shell) -> None:
    start_run(Training(model="mlp", clients=3, rounds=5), "run").close()
    assert shell.refuses("report", "run") == "run holds a run of which no round was saved yet"


def test_pictures_no_browser_shows(shell: Shell) -> None:
    assert shell("show", "--rounds", 50, "--out", "air.pdf").code == 0
    assert shell.refuses("report", "air.pdf").startswith(
        "air.pdf is a picture that a page cannot show"
    )
    assert shell(*SIMULATE, "--out", "one.nc").code == 0
    done = shell("report", ".")
    assert done.err.startswith(
        "note: left out: air.pdf is a picture that a page cannot show: open it"
    )


def test_one_file_becomes_a_page_of_any_name(shell: Shell) -> None:
    assert shell(*SIMULATE, "--out", "one.nc").code == 0
    done = shell("report", "one.nc", "--out", "pages/mine.html")
    assert done.out.startswith("wrote pages/mine.html: 1 result, ")


def test_what_is_left_out_is_told(shell: Shell) -> None:
    assert shell(*SIMULATE, "--out", "one.nc").code == 0
    Path("broken.nc").write_text("nothing")
    done = shell("report", ".")
    assert done.code == 0
    assert (
        done.err
        == "note: left out: broken.nc is damaged or not a result: it has no seal at its end\n"
    )


def test_nothing_to_show(shell: Shell) -> None:
    nothing = "no file *.nc, no run, no verdicts and no picture"
    assert shell.refuses("report", ".") == f". holds no result: {nothing}"
    assert "cannot read nowhere" in shell.refuses("report", "nowhere")
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize("missing", ["plotly.offline", "jinja2"])
def test_without_the_extra(shell: Shell, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "freshband.reporting._page.render", raising=False)
    assert shell.refuses("report", ".") == (
        f"a report needs {missing.partition('.')[0]}; install it with: "
        "pip install 'freshband[report]'"
    )
