"""Experiments are computed piece by piece, can be interrupted, and are known by registration."""

from __future__ import annotations

import csv
import dataclasses
import html
import json
import math
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import xarray as xr

from freshband._sealed import load_sealed
from freshband.coordinator import Coordinator
from freshband.errors import FileError, ParameterError
from freshband.experiments.base import (
    Claim,
    Experiment,
    Machine,
    Piece,
    Results,
    _experiment_names,
    _find_verdicts,
    _same_settings,
    judge,
    judge_order,
    load_pieces,
    register,
    registry,
    reproduce,
)
from freshband.experiments.fig2a import Fig2a
from freshband.experiments.fig2c import Fig2c
from freshband.experiments.fig3 import Fig3
from freshband.experiments.fig4 import Fig4
from freshband.experiments.rules import _ruled
from freshband.experiments.tables import table_against
from freshband.experiments.training import Trained
from freshband.experiments.verdicts import Verdict, correct
from freshband.reporting._figures import draw_picture
from freshband.reporting._reproduction import reproduction_page, written_measure
from freshband.reporting.curves import save_figure
from freshband.reporting.report import write_report

DOCS = Path(__file__).parents[2] / "docs"
QUIET = Machine(device="cpu", progress=False)
TINY = {
    "model": "mlp", "clients": 4, "rounds": 160, "eval_every": 20, "local_steps": 1,
    "batch_size": 8,
}  # fmt: skip
SMALL = Fig2c(scale="quick", runs=2, channels=(3, 8))
TRAINED = [name for name in _experiment_names() if issubclass(registry[name], Trained)]
SIMULATED = [name for name in _experiment_names() if name not in TRAINED]


def shrink(experiment: Experiment) -> Experiment:
    """The same with two of everything: runs, places, numbers of channels and so on."""
    sizes: dict[str, Any] = {}
    for field in dataclasses.fields(experiment):
        value = getattr(experiment, field.name)
        if isinstance(value, int):
            sizes[field.name] = min(value, 2)
        elif isinstance(value, tuple):
            sizes[field.name] = tuple(dict.fromkeys([*value[:1], *value[-1:]]))
        elif field.name == "runs":
            sizes[field.name] = dict.fromkeys(value, 2)
    if isinstance(experiment, Trained):
        sizes["changes"] = TINY
        if not isinstance(experiment, Fig3 | Fig4):
            sizes["places"] = sizes["places"][:1]
    return dataclasses.replace(experiment, **sizes)


def play(experiment: Experiment, folder: Path) -> list[tuple[str, bool]]:
    return [(piece.key, known) for piece, known in reproduce(experiment, folder, QUIET)]


# ------------------------------------------------------------------------- one piece after another


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small experiment that was played."""
    folder = tmp_path_factory.mktemp("small")
    assert play(SMALL, folder) == [("channel-sets-quick-3", False), ("channel-sets-quick-8", False)]
    return folder


@pytest.fixture
def played(small: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(small, tmp_path / "played"))


def test_what_is_there_is_not_computed_again(played: Path) -> None:
    kept = (played / "channel-sets-quick-3.nc").read_bytes()
    (played / "channel-sets-quick-8.nc").unlink()
    again = [("channel-sets-quick-3", True), ("channel-sets-quick-8", False)]
    assert play(SMALL, played) == again
    assert (played / "channel-sets-quick-3.nc").read_bytes() == kept


def test_interrupted_experiments_go_on(tmp_path: Path) -> None:
    steps = reproduce(SMALL, tmp_path, QUIET)
    next(steps)
    steps.close()
    assert not (tmp_path / "fig2c-quick.json").exists()
    with pytest.raises(FileError, match=r"channel-sets-quick-8\.nc does not exist yet"):
        load_pieces(SMALL, tmp_path)
    assert [known for _, known in play(SMALL, tmp_path)] == [True, False]


def test_a_damaged_piece_is_made_again(played: Path) -> None:
    path = played / "channel-sets-quick-3.nc"
    path.write_bytes(path.read_bytes()[:-10])
    assert [known for _, known in play(SMALL, played)] == [False, True]
    assert load_pieces(SMALL, played)["channel-sets-quick-3"].sizes["run"] > 0


def test_a_file_of_other_settings_is_not_mistaken(played: Path) -> None:
    with pytest.raises(FileError, match="made with other settings"):
        play(dataclasses.replace(SMALL, runs=3), played)
    assert _same_settings({"means": [1, 2]}, {"means": (1, 2)})  # as JSON has them
    assert not _same_settings(None, {})


class Odd(Experiment):
    """One piece that is no result."""

    def pieces(self) -> Sequence[Piece]:
        return [Piece("odd", {}, lambda machine: xr.Dataset())]

    def claims(self, results: Results) -> Sequence[Claim]:
        return []


def test_a_piece_is_a_result(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="piece 'odd' must be a result of simulate or compare"):
        play(Odd(), tmp_path)
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------- everything that is registered


def check_verdicts_and_pictures(experiment: Experiment, folder: Path) -> list[dict[str, Any]]:
    """Return the claims of an experiment that was played, and leave its pictures in the folder."""
    claims: list[dict[str, Any]] = json.loads((folder / experiment.verdicts).read_text())["claims"]
    assert claims
    for claim in claims:
        assert claim["verdict"] in get_args(Verdict)
        assert np.isfinite(claim["ours"])
    results = load_pieces(experiment, folder)
    for shown, picture in experiment.figures.items():
        figure = draw_picture(picture(experiment, results))
        assert figure.axes[0].lines or figure.axes[0].patches
        save_figure(figure, folder / experiment.file(shown, ".png"))
    return claims


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
    assert "holds totals" in page or "holds means" in page  # and how to compute the rest


@pytest.mark.parametrize("name", SIMULATED)
def test_simulated_experiments_give_verdicts_and_a_picture(name: str, tmp_path: Path) -> None:
    experiment = shrink(registry[name].at("quick"))
    play(experiment, tmp_path)
    check_report(tmp_path, check_verdicts_and_pictures(experiment, tmp_path))


def test_trained_experiments_share_their_runs(tmp_path: Path) -> None:
    """All in one folder, in their order, as ``freshband reproduce all`` has it."""
    made: dict[str, list[str]] = {}
    claims = []
    for name in TRAINED:
        experiment = shrink(registry[name].at("quick"))
        made[name] = [key for key, known in play(experiment, tmp_path) if not known]
        claims += check_verdicts_and_pictures(experiment, tmp_path)
    check_report(tmp_path, claims)
    assert len(made["fig3"]) == 10
    assert made["fig4"] == []
    assert [key.removeprefix("training-quick-digits-") for key in made["parts"]] == [
        "wide-random", "wide-bayes.priority", "wide-random.eager.average",
        "wide-bayes.priority.eager.average",
    ]  # fmt: skip
    fig3 = load_pieces(shrink(registry["fig3"].at("quick")), tmp_path)
    settings = json.loads(fig3["training-quick-digits-piecewise-random"].attrs["config"])[
        "settings"
    ]
    assert (settings["device"], settings["dataset_options"]) == ("auto", {})  # not: where it ran


@pytest.mark.parametrize("name", _experiment_names())
def test_what_is_registered_says_what_it_is(name: str) -> None:
    experiment = registry[name]
    assert experiment.title
    assert experiment.question.endswith("?")
    for scale in ("quick", "full"):
        sized = experiment.at(scale)
        keys = [piece.key for piece in sized.pieces()]
        assert len(keys) == len(set(keys))
        assert all(scale in key for key in keys)
        assert f"{scale}: " in experiment.needs()
        assert all(dataset in experiment.needs() for dataset in sized.datasets)
        assert _find_verdicts(sized.verdicts) == sized
    assert _find_verdicts("package.json") is None
    for shown in experiment.figures:
        assert "fig" not in shown  # named by its content: the paper's captions are swapped
    assert experiment.quick.keys() <= {field.name for field in dataclasses.fields(experiment)}


def test_what_is_incomplete_is_not_registered() -> None:
    before = _experiment_names()
    with pytest.raises(ParameterError, match="an experiment cannot be called 'all'"):
        register("all")(Fig2c)
    with pytest.raises(ParameterError, match="experiment 'odd' needs 'title': what it shows"):
        register("odd")(Odd)
    with pytest.raises(TypeError, match="abstract method"):
        register("half")(type("Half", (Experiment,), {"title": "Half", "question": "Is it?"}))
    with pytest.raises(ParameterError, match="experiment 'fig2a' is registered already"):
        register("fig2a")(type("Other", (Odd,), {"title": "Other", "question": "Which?"}))
    assert _experiment_names() == before


def test_a_table_is_fixed_in_advance_and_starves_the_oldest() -> None:
    table = table_against("glr-cucb:paper+age", 4, 6, 60, seed=3)
    again = table_against("glr-cucb:paper+age", 4, 6, 60, seed=3)
    assert np.array_equal(table, again)
    assert set(np.unique(table)) == {0.0, 1.0}
    learner = Coordinator("glr-cucb:paper+age", 4, 6, horizon=60, seed=1003)  # the same coins
    for t, row in enumerate(table):
        plan, oldest = learner.plan(), int(np.argmax(learner.ages))
        assert row[plan[oldest]] == 0
        learner.observe(row[plan] == 1)
        assert learner.ages.max() >= min(t + 2, 3)


# ------------------------------------------------------------------------------------ verdicts


def test_verdicts() -> None:
    assert judge("x", "5", [5.1, 4.9, 5.2], at_least=5).verdict == "reproduced"
    assert judge("x", "5", [4.1, 4.9, 4.2], at_least=5).verdict == "not reproduced"
    assert judge("x", "5", [4.1, 4.0, 4.2], at_most=5).verdict == "exceeded"
    assert judge("x", "5", [6.0], at_least=5).verdict == "reproduced"  # one run proves no excess
    assert judge_order("x", "above", [1.0, 1.1, 0.9]).verdict == "reproduced"
    assert judge_order("x", "above", [1.0, -1.1, 0.9]).verdict == "not reproduced"
    with pytest.raises(ValueError, match="at_least or at_most"):
        judge("x", "5", [5.0])


def test_orderings_of_figure_2_hold(tmp_path: Path) -> None:
    experiment = Fig2a(scale="quick", runs=12, points=200)
    play(experiment, tmp_path)
    found = {
        claim["what"]: claim["verdict"]
        for claim in json.loads((tmp_path / experiment.verdicts).read_text())["claims"]
    }
    assert found["m-exp3:paper below random"] == "reproduced"
    assert found["glr-cucb:paper below m-exp3:paper"] == "reproduced"
    assert found["glr-cucb:paper+aa below glr-cucb:paper"] == "reproduced"
    assert found["m-exp3:paper+aa below m-exp3:paper"] == "not reproduced"


def test_verdicts_are_corrected_for_their_number() -> None:
    clear = judge_order("x", "above", [1.0, 1.1, 0.9])
    close = judge_order("y", "above", [1.0, 1.2, 0.9, 0.1])
    assert [claim.verdict for claim in (clear, close)] == ["reproduced", "reproduced"]
    found = correct([close, clear, judge("z", "5", [6.0], at_least=5), close])
    assert [claim.verdict for claim in found] == [
        "not reproduced", "reproduced", "reproduced", "not reproduced",
    ]  # fmt: skip
    assert [claim.p for claim in found][:2] == pytest.approx([2 * close.p, 3 * clear.p])
    assert math.isnan(found[2].p)  # a single run is no test, and counts for none


@pytest.mark.parametrize(
    ("ours", "half", "written"),
    [
        (18292.3, 0.1234, "18,292 regret [18,292, 18,292]"),
        (-5.678, math.nan, "-5.68 regret"),
        (12.34, 123.4, "12.3 regret [-111, 136]"),
    ],
)
def test_numbers_have_about_three_digits(ours: float, half: float, written: str) -> None:
    claim = {"ours": ours, "low": ours - half, "high": ours + half, "unit": "regret"}
    assert written_measure(claim) == written


# ------------------------------------------------------------------ the files of the documentation


def test_ours_does_what_was_best_under_random_scheduling() -> None:
    claims = json.loads((DOCS / "reproduction" / "rules-full.json").read_text())["claims"]
    best = [claim["what"] for claim in claims if ", best" in claim["why"]]
    assert len(best) == 2
    assert all(f": {_ruled('random')} above random " in what for what in best)


def test_the_files_of_the_documentation_can_be_reported(tmp_path: Path) -> None:
    folder = DOCS / "reproduction"
    written = write_report(folder, tmp_path / "it.html")
    assert written.left_out == []
    assert len(written.shown) == len([*folder.rglob("*.nc"), *folder.rglob("*.json")])
    assert len(written.pictures) == len([*folder.rglob("*.png")])


def test_the_table_of_earlier_runs_is_what_its_files_say() -> None:
    folder, checked = DOCS / "reproduction", 0
    with (folder / "earlier.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            name = row["policy"].translate(str.maketrans(":+@", "..."))
            path = folder / "earlier" / f"training-full-{row['data set']}-{row['air']}-{name}.nc"
            if not path.exists():  # of runs with `fixed` only these numbers were kept
                assert row["policy"].endswith("@fixed")
                continue
            result = load_sealed(path, "freshband comparison 1").isel(policy=0)
            accuracy = 100 * result.accuracy.values
            for column, values, digits in (
                ("last 25 rounds", np.nanmean(accuracy[:, -25:], axis=1), 2),
                ("round 250", accuracy[:, -1], 2),
                ("cumulative variance", result.cumulative_variance.values[:, -1], 1),
            ):
                kept = [float(value) for value in row[column].split()]
                assert kept == pytest.approx(values.astype(float).round(digits))
            checked += 1
    assert checked >= 20


def test_the_page_is_what_its_files_say() -> None:
    page = (DOCS / "reproduction.md").read_text(encoding="utf-8")
    assert reproduction_page(DOCS / "reproduction") == page
    for picture in re.findall(r"\]\((reproduction/[^)]*)\)", page):
        assert (DOCS / picture).exists()
    for name in _experiment_names():
        assert f"freshband reproduce {name} --scale full" in page


def test_every_text_beside_the_files_has_a_place_on_the_page() -> None:
    page = (DOCS / "reproduction.md").read_text(encoding="utf-8")
    texts = [path.read_text(encoding="utf-8") for path in (DOCS / "reproduction").glob("*.md")]
    assert len(texts) >= 3
    assert all(text in page for text in texts)
