"""The list of all bounds, and how it is drawn and printed."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from freshband import simulate
from freshband.cli.bounds import bounds
from freshband.errors import ParameterError
from freshband.reporting.bounds import draw_bounds
from freshband.theory.overview import Air, describe_air, list_bounds
from tests.theory.margins import needs_compiler

AIR = Air(worst=0.2, best=0.5, best_mean=0.6, gap=0.1)
EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def test_constants_of_an_air() -> None:
    air = describe_air([[[0.9, 0.5, 0.2], [0.4, 0.3, 0.8]], [[0.3, 0.7, 0.75]] * 2], 2)
    assert air == Air(worst=0.2, best=0.4, best_mean=0.6, gap=0.1)
    assert describe_air([0.5, 0.7], 2).gap == np.inf


def test_curves_end_where_the_numbers_are() -> None:
    rounds = np.array([100, 1000, 20_000])
    curves, numbers = (list_bounds(2, 5, t, 6, AIR) for t in (rounds, 20_000))
    for curve, number in zip(curves, numbers, strict=True):
        assert curve.bound.value.shape == (3,)
        assert float(curve.bound.value[-1]) == float(number.bound.value)
        assert (np.diff(curve.bound.value) > 0).all()
    assert [entry.bound.kind for entry in numbers] == ["lower"] * 5 + ["upper"] * 5


def test_every_set_is_best_and_dead_channels() -> None:
    alike = list_bounds(2, 2, 1000, 1, AIR._replace(gap=np.inf))
    assert all(np.isfinite(entry.bound.value) for entry in alike)
    with pytest.raises(ParameterError, match=r"air.worst must be above 0, got 0.0"):
        list_bounds(2, 5, 1000, 1, AIR._replace(worst=0.0))


def test_bounds_are_drawn_over_the_policies() -> None:
    result = simulate("piecewise", "random,cucb", rounds=400, runs=2, points=8, progress=False)
    entries = list_bounds(2, 5, result["round"].values, 6, AIR)
    axes = draw_bounds(result, entries).axes[0]
    assert len(axes.lines) == 2 + len(entries)
    legend = axes.get_legend()
    assert legend is not None
    assert {text.get_text() for text in legend.get_texts()} == {"random", "cucb"}
    named = {text.get_text() for text in axes.texts}
    assert {"Theorem 3, literal (?)", "any policy, corrected", "Theorem 2, corrected"} <= named
    for entry, line in zip(entries, axes.lines[2:], strict=True):
        y = np.asarray(line.get_ydata(), float)
        shown = np.isfinite(y)
        np.testing.assert_allclose(y[shown], entry.bound.value[shown])
        assert (entry.bound.value[~shown] <= 0).all()


# ----------------------------------------------------------------------------- the command line


def run(*arguments: object) -> Any:
    app = typer.Typer()
    app.command()(bounds)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


SHORT = ("--rounds", 600, "--runs", 2, "--policies", "random,cucb", "--quiet")


def test_json(tmp_path: Path) -> None:
    picture = tmp_path / "bounds.png"
    done = run(*SHORT, "--clients", 2, "--n-channels", 5, "--breakpoints", 3, "--format", "json",
               "--plot", picture)  # fmt: skip
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert (report["clients"], report["n_channels"], report["n_segments"]) == (2, 5, 4)
    assert 0.1 <= report["air"]["worst"] <= report["air"]["best"] <= 0.9
    rows = {(row["result"], row["variant"]): row for row in report["bounds"]}
    assert rows["Theorem 3", "literal"]["failing"] == ["rounds > 16 (e-1) C^3 ln C"]
    assert rows["Theorem 3", "literal"]["says_nothing"]
    assert not rows["any policy", "corrected"]["says_nothing"]
    assert rows["Theorem 2", "corrected"]["holds"]
    regret = report["simulation"]["policies"]["random"]["regret"]["mean"]
    assert 0 < regret < rows["any policy", "corrected"]["value"]
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_table() -> None:
    done = run(*SHORT, "--breakpoints", 0)
    assert done.exit_code == 0, done.output
    for text in ("Theorem 5", "any policy", "says nothing", "1 segment", "random", "≥", "≤"):
        assert text in done.stdout


def test_every_channel_in_use() -> None:
    done = run(*SHORT, "--n-channels", 2, "--format", "json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["air"]["gap"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--clients", 6), "clients must be at most the number of channels, 5, got 6"),
        (("--breakpoints", -1), "n_breakpoints must be"),
        (("--plot", "bounds.txt"), "the name of a picture must end in"),
    ],
)
def test_bad_input(arguments: tuple[object, ...], message: str) -> None:
    done = run(*SHORT, *arguments)
    assert isinstance(done.exception, ParameterError)
    assert message in str(done.exception)


# --------------------------------------------------------------------------- the pages' pictures


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(
    "name", ["ages", "convergence", "cost-law", "lower-bounds", "m-exp3", "glr-cucb", "matching"]
)
def test_pictures_of_the_chapters_can_be_drawn(name: str, tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("plots", EXAMPLES / "theory_plots.py")
    assert spec is not None
    assert spec.loader is not None
    plots = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plots)
    assert name in plots.PICTURES
    plots.QUICK = True
    plots.main(tmp_path, [name])
    assert (tmp_path / f"theory-{name}.png").stat().st_size > 10_000
