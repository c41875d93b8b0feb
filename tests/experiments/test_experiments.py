"""Experiments are computed piece by piece, can be interrupted, and judge what they find."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from typer.testing import CliRunner

from freshband.cli.app import app
from freshband.errors import FileError, UnknownNameError
from freshband.experiments import choice, fig2a, fig2b, fig2c, fig4, rules, training
from freshband.experiments.base import (
    EXPERIMENTS,
    Machine,
    Scale,
    Verdict,
    find_experiment,
    judge,
    judge_order,
    load_pieces,
    reproduce,
)
from freshband.federated.settings import Training
from freshband.reporting.curves import save_figure
from freshband.reporting.figures import FIGURES, draw_experiment
from freshband.reporting.report import write_report
from freshband.reporting.reproduction import reproduction_page

QUIET = Machine(device="cpu", progress=False)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(fig2a, "_RUNS", {Scale.quick: 3})
    monkeypatch.setattr(fig2b, "_RUNS", {Scale.quick: 3})
    monkeypatch.setattr(fig2b, "_COUNTS", {Scale.quick: (0, 12)})
    monkeypatch.setattr(fig4, "_RUNS", {Scale.quick: 4})
    monkeypatch.setattr(fig2c, "_RUNS", {Scale.quick: 2})
    monkeypatch.setattr(fig2c, "_CHANNELS", {Scale.quick: (3, 8)})

    def tiny(dataset: str, air: str, run: int = 0, options: Any = None) -> Training:
        chosen = options or {"local_steps": 1, "batch_size": 8}
        return Training(
            model="mlp", channels=f"fig3-{air}", clients=4, rounds=160, run=run, eval_every=20,
            **chosen,
        )  # fmt: skip

    monkeypatch.setattr(training, "settings_of", tiny)
    return monkeypatch


def play(name: str, folder: Path) -> list[tuple[str, bool]]:
    return [(piece.key, known) for piece, known in reproduce(name, Scale.quick, folder, QUIET)]


def test_what_is_there_is_not_computed_again(small: Any, tmp_path: Path) -> None:
    first = play("fig2c", tmp_path)
    assert first == [("channel-sets-quick-3", False), ("channel-sets-quick-8", False)]
    kept = (tmp_path / "channel-sets-quick-3.nc").read_bytes()
    (tmp_path / "channel-sets-quick-8.nc").unlink()
    assert play("fig2c", tmp_path) == [(first[0][0], True), (first[1][0], False)]
    assert (tmp_path / "channel-sets-quick-3.nc").read_bytes() == kept


def test_interrupted_experiments_go_on(small: Any, tmp_path: Path) -> None:
    steps = reproduce("fig2c", Scale.quick, tmp_path, QUIET)
    next(steps)
    steps.close()
    assert not (tmp_path / "fig2c-quick.json").exists()
    with pytest.raises(FileError, match=r"channel-sets-quick-8\.nc is not there yet"):
        load_pieces("fig2c", Scale.quick, tmp_path)
    assert [known for _, known in play("fig2c", tmp_path)] == [True, False]


def test_a_file_of_other_settings_is_not_mistaken(small: Any, tmp_path: Path) -> None:
    play("fig2c", tmp_path)
    small.setattr(fig2c, "_RUNS", {Scale.quick: 3})
    with pytest.raises(FileError, match="made with other settings"):
        play("fig2c", tmp_path)


def check_verdicts_and_picture(name: str, folder: Path) -> None:
    play(name, folder)
    claims = json.loads((folder / f"{name}-quick.json").read_text())
    assert claims
    for claim in claims:
        assert claim["verdict"] in get_args(Verdict)
        assert np.isfinite(claim["ours"])
    drawn = draw_experiment(name, load_pieces(name, Scale.quick, folder), Scale.quick)
    for shown, figure in drawn.items():
        assert "fig" not in shown  # named by its content: the paper's captions are swapped
        assert figure.axes[0].lines or figure.axes[0].patches
        save_figure(figure, folder / f"{shown}-quick.png")
    check_report(folder, claims)


def check_report(folder: Path, claims: list[dict[str, Any]]) -> None:
    """Everything in the folder is on the page: verdicts, pieces and pictures."""
    written = write_report(folder)
    assert written.left_out == []
    assert set(written.shown) == {*folder.glob("*.nc"), *folder.glob("*.json")}
    assert set(written.pictures) == {*folder.glob("*.png")}
    page = html.unescape(written.path.read_text(encoding="utf-8"))
    for claim in claims:
        assert claim["what"] in page
        assert claim["why"] in page
    assert "keeps totals" in page or "keeps means" in page  # and how to compute the rest


@pytest.mark.parametrize("name", ["fig2a", "fig2b", "fig2c"])
def test_simulated_figures_give_verdicts_and_a_picture(
    small: Any, name: str, tmp_path: Path
) -> None:
    check_verdicts_and_picture(name, tmp_path)


def test_trained_figures_share_their_runs(small: Any, tmp_path: Path) -> None:
    check_verdicts_and_picture("fig3", tmp_path)
    assert all(known for key, known in play("fig4", tmp_path) if key.startswith("training"))
    check_verdicts_and_picture("fig4", tmp_path)
    again = dict(play("parts", tmp_path))
    assert [key.split("-", 4)[4] for key, known in again.items() if not known] == [
        "bayes.priority", "random.eager.average", "glr-cucb.paper.priority.eager.average",
        "bayes.priority", "random.eager.average", "m-exp3.paper.priority.eager.average",
    ]  # fmt: skip
    check_verdicts_and_picture("parts", tmp_path)
    assert "**Why" not in reproduction_page(tmp_path)  # the reasons are those of the full scale
    result = load_pieces("fig3", Scale.quick, tmp_path)["training-quick-digits-piecewise-random"]
    settings = json.loads(result.attrs["config"])["settings"]
    assert (settings["device"], settings["dataset_options"]) == ("auto", {})  # not: where it ran


def test_rules_are_tried_in_runs_that_no_figure_shows(small: Any, tmp_path: Path) -> None:
    small.setattr(rules, "AIRS", ("extreme",))
    small.setattr(rules, "RULES", {Scale.quick: ("", "eager", "fixed+average")})
    small.setattr(rules, "RIVALS", {Scale.quick: ("fedavg", "longer+average")})
    small.setattr("freshband.reporting.figures.AIRS", ("extreme",))
    check_verdicts_and_picture("rules", tmp_path)
    results = load_pieces("rules", Scale.quick, tmp_path)
    assert list(results) == [
        f"training-quick-digits-extreme-random{rule}"
        for rule in ("-1000", ".eager-1000", ".fixed.average-1000", ".fedavg-1000",
                     ".average-1000-x2")
    ]  # fmt: skip
    assert all(result.run.values.tolist() == [1000, 1001] for result in results.values())
    made = [json.loads(result.attrs["config"]) for result in results.values()]
    assert [each["policies"] for each in made] == [
        ["random"], ["random@eager"], ["random@fixed+average"], ["random@fedavg"],
        ["random@average"],
    ]  # fmt: skip
    assert [each["settings"]["local_steps"] for each in made] == [1, 1, 1, 1, 2]
    late = rules.late(results, Scale.quick, "extreme")
    best = rules.best_rule(results, Scale.quick, "extreme")
    assert late[best].mean() == max(late[r].mean() for r in ("", "eager", "fixed+average"))
    assert set(late) == {"", "eager", "fixed+average", "fedavg", "longer+average"}
    trained = [int(result.trained.sum()) for result in results.values()]
    assert trained[3] > trained[1] > trained[0] == trained[2] == trained[4]
    told = [claim.why.partition("; ")[2] for claim in rules.claims(results, Scale.quick)]
    assert [text.split()[0] for text in told] == [
        "eager", "fixed+average", "fedavg", "longer+average",
    ]  # fmt: skip
    assert told[1].endswith("with 1.0 times the work in each")
    assert told[3].endswith("with 2.0 times the work in each")


def test_orderings_of_figure_2_hold(small: Any, tmp_path: Path) -> None:
    small.setattr(fig2a, "_RUNS", {Scale.quick: 12})
    play("fig2a", tmp_path)
    found = {
        claim["what"]: claim["verdict"]
        for claim in json.loads((tmp_path / "fig2a-quick.json").read_text())
    }
    assert found["m-exp3:paper below random"] == "reproduced"
    assert found["glr-cucb:paper below m-exp3:paper"] == "reproduced"
    assert found["glr-cucb:paper+aa below glr-cucb:paper"] == "reproduced"
    assert found["m-exp3:paper+aa below m-exp3:paper"] == "not reproduced"


def test_verdicts() -> None:
    assert judge("x", "5", [5.1, 4.9, 5.2], at_least=5).verdict == "reproduced"
    assert judge("x", "5", [4.1, 4.9, 4.2], at_least=5).verdict == "not reproduced"
    assert judge("x", "5", [4.1, 4.0, 4.2], at_most=5).verdict == "exceeded"
    assert judge("x", "5", [6.0], at_least=5).verdict == "reproduced"  # one run proves no excess
    assert judge_order("x", "above", [1.0, 1.1, 0.9]).verdict == "reproduced"
    assert judge_order("x", "above", [1.0, -1.1, 0.9]).verdict == "not reproduced"
    with pytest.raises(ValueError, match="at_least or at_most"):
        judge("x", "5", [5.0])


def test_unknown_experiments_are_named() -> None:
    with pytest.raises(UnknownNameError, match="unknown experiment 'fig2d'; did you mean"):
        find_experiment("fig2d")
    assert set(FIGURES) == set(EXPERIMENTS)


def test_what_is_left_open_is_chosen_by_trials_that_are_kept(small: Any, tmp_path: Path) -> None:
    small.setattr(choice, "GRID", {("digits", "extreme"): [((1,), (8,), (1e-6, 0.1))]})
    steps = choice.try_all(tmp_path, QUIET)
    first = next(steps)
    steps.close()
    assert choice.read_trials(tmp_path) == [first]
    (second,) = choice.try_all(tmp_path, QUIET)
    assert second["accuracy"] > first["accuracy"] + 0.2  # a step too small learns nothing
    best = {"local_steps": 1, "batch_size": 8, "client_lr": 0.1}
    assert choice.best_of(choice.read_trials(tmp_path), "digits", "extreme") == best
    assert list(choice.try_all(tmp_path, QUIET)) == []
    assert "| **digits, extreme** | **1** | **8** | **0.1** |" in reproduction_page(tmp_path)


def test_the_choice_from_the_command_line(small: Any, tmp_path: Path) -> None:
    small.setattr(choice, "GRID", {("digits", "extreme"): [((1,), (8,), (1e-6, 0.1))]})
    command = ["reproduce", "choice", "--out", str(tmp_path), "--device", "cpu", "--quiet"]
    first = CliRunner().invoke(app, [*command, "--pieces", "1"])
    assert first.exit_code == 0, first.output
    assert "client_lr 1e-06, accuracy" in first.stderr
    assert first.stdout == "digits, extreme: local_steps 1, batch_size 8, client_lr 1e-06\n"
    second = CliRunner().invoke(app, [*command, "--format", "json"])
    best = {"local_steps": 1, "batch_size": 8, "client_lr": 0.1}
    assert json.loads(second.stdout) == {"digits, extreme": best}
    assert "1e-06" not in second.stderr  # it was tried before
    written = write_report(tmp_path)
    assert (written.shown, written.left_out) == ([tmp_path / "choice.json"], [])
    page = written.path.read_text(encoding="utf-8")
    assert page.count("<td>taken</td>") == 1
    assert "<td>1e-06</td>" in page


def test_settings_are_the_best_of_what_was_tried() -> None:
    trials = choice.read_trials(Path(__file__).parents[2] / "docs" / "reproduction")
    if not trials:
        pytest.skip("nothing was tried yet")
    for dataset, air in {(trial["dataset"], trial["air"]) for trial in trials}:
        assert training.OPEN[dataset, air] == choice.best_of(trials, dataset, air)


@pytest.mark.parametrize("air", training.AIRS)
def test_ours_does_what_was_best_under_random_scheduling(air: str) -> None:
    folder = Path(__file__).parents[2] / "docs" / "reproduction"
    results = load_pieces("rules", Scale.full, folder)
    assert rules.best_rule(results, Scale.full, air) == rules.OURS


def test_the_files_of_the_documentation_can_be_reported(tmp_path: Path) -> None:
    folder = Path(__file__).parents[2] / "docs" / "reproduction"
    written = write_report(folder, tmp_path / "it.html")
    assert written.left_out == []
    assert len(written.shown) == len([*folder.glob("*.nc"), *folder.glob("*.json")])
    assert len(written.pictures) == len([*folder.glob("*.png")])


def test_the_page_is_what_its_files_say() -> None:
    docs = Path(__file__).parents[2] / "docs"
    page = (docs / "reproduction.md").read_text(encoding="utf-8")
    assert reproduction_page(docs / "reproduction") == page
    for picture in re.findall(r"\]\((reproduction/[^)]*)\)", page):
        assert (docs / picture).exists()
