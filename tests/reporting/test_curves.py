"""Curves: labelled, one line a policy, and never half a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from freshband import simulate
from freshband.channels import Table
from freshband.errors import FileError, ParameterError
from freshband.reporting.curves import (
    COLOURS,
    _check_figure,
    _check_measure,
    draw_curves,
    save_figure,
)
from tests.simulation.refusing import refused

MEASURES = {
    "regret": "AoI regret against the mean+age oracle",
    "regret_rotate": "AoI regret against the mean+rotate oracle",
    "age": "cumulative AoI, all clients",
    "variance": "cumulative AoI variance",
}


@pytest.fixture(scope="module")
def result() -> xr.Dataset:
    return simulate("piecewise", "random,cucb,oracle", rounds=300, runs=4, points=10)


@pytest.fixture(scope="module")
def recorded() -> xr.Dataset:
    states = np.random.default_rng(0).integers(0, 2, (200, 4))
    return simulate(Table(states=states), "random,cucb", rounds=200, runs=2)


@pytest.mark.parametrize("measure", MEASURES)
def test_axes_are_labelled(result: xr.Dataset, measure: str) -> None:
    axes = draw_curves(result, measure).axes[0]
    assert axes.get_xlabel() == "round"
    assert axes.get_ylabel() == MEASURES[measure]
    assert axes.get_xlim() == (0, 300)
    title = axes.get_title(loc="left")
    assert title == "piecewise: M = 2, 4 runs, seed 0; band: 95 % interval of the mean"


@pytest.mark.parametrize("measure", MEASURES)
def test_one_line_and_one_band_a_policy(result: xr.Dataset, measure: str) -> None:
    axes = draw_curves(result, measure).axes[0]
    curves = result[f"{measure}_curve"]
    assert len(axes.lines) == 3
    bands = [each for each in axes.collections if isinstance(each, PolyCollection)]
    assert len(bands) == 3
    for line in axes.lines:
        expected = curves.sel(policy=line.get_label())
        x, y = np.array(line.get_data())
        np.testing.assert_array_equal(x, [0, *result["round"].values])
        np.testing.assert_allclose(y, [0, *expected.mean("run").values])
    error = 3.18244631 * curves.sel(policy=axes.lines[0].get_label()).std("run", ddof=1) / 2
    edges = bands[0].get_paths()[0].vertices[:, 1]
    assert edges.max() == pytest.approx(float((y_of(axes.lines[0]) + error.values).max()))


def y_of(line: Any) -> Any:
    return np.array(line.get_ydata())[1:]


def test_the_legend_goes_from_worst_to_best(result: xr.Dataset) -> None:
    legend = draw_curves(result).axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["random", "cucb", "oracle"]
    assert legend.get_title().get_text() == "policy, worst first"


def test_a_policy_keeps_its_colour_whatever_its_rank(result: xr.Dataset) -> None:
    backward = result.sel(policy=["oracle", "cucb", "random"])
    lines = {line.get_label(): line.get_color() for line in draw_curves(backward).axes[0].lines}
    assert lines == {"oracle": COLOURS[0], "cucb": COLOURS[1], "random": COLOURS[2]}


def test_a_curve_that_a_file_does_not_keep_is_named(result: xr.Dataset) -> None:
    with refused(ParameterError, "one of the result's curves, got 'age'"):
        draw_curves(result.drop_vars("age_curve"), "age")


def test_a_single_run_has_no_band() -> None:
    single = simulate("stationary", "random,cucb", rounds=50, runs=1)
    axes = draw_curves(single).axes[0]
    assert not axes.collections
    assert axes.get_title(loc="left") == "stationary: M = 2, 1 run, seed 0"


def test_many_policies_differ_by_colour_or_dash(result: xr.Dataset) -> None:
    names = [f"policy {i}" for i in range(20)]
    many = xr.concat([result.isel(policy=[0])] * 20, "policy").assign_coords(policy=names)
    styles = {(line.get_color(), line.get_linestyle()) for line in draw_curves(many).axes[0].lines}
    assert len(styles) == 20


def test_without_means_regret_falls_back_to_the_fixed_set(recorded: xr.Dataset) -> None:
    for measure in ("regret", "regret_fixed"):
        axes = draw_curves(recorded, measure).axes[0]
        assert axes.get_ylabel() == "AoI regret against the best fixed set"
        assert len(axes.lines) == 2
    assert len(draw_curves(recorded, "age").axes[0].lines) == 2


def test_measures_that_do_not_apply(result: xr.Dataset, recorded: xr.Dataset) -> None:
    message = "measure must not be 'regret_fixed' for channels that have means"
    with refused(ParameterError, message):
        draw_curves(result, "regret_fixed")
    message = "measure must not be 'regret_rotate' for channels that have no means"
    with refused(ParameterError, message):
        draw_curves(recorded, "regret_rotate")


@pytest.mark.parametrize("measure", ["rgret", "", None, 3, ["age"], "jain"])
def test_unknown_measures(result: xr.Dataset, measure: Any) -> None:
    message = "measure must be one of regret, regret_rotate, regret_fixed, age, variance, got "
    with refused(ParameterError, message):
        draw_curves(result, measure)
    with refused(ParameterError, message):
        _check_measure(measure, has_means=True)


@pytest.mark.parametrize("other", [None, "result.nc", xr.Dataset()])
def test_only_results_can_be_drawn(other: Any) -> None:
    with refused(ParameterError, "result must come from simulate or load_result, got "):
        draw_curves(other)


# ------------------------------------------------------------------------------------------ files


@pytest.mark.parametrize(
    ("ending", "begins"),
    [
        ("png", b"\x89PNG"),
        ("pdf", b"%PDF"),
        ("svg", b"<?xml"),
        ("eps", b"%!PS"),
        ("jpg", b"\xff\xd8"),
        ("tif", b"II*"),
        ("webp", b"RIFF"),
        ("PNG", b"\x89PNG"),
    ],
)
def test_formats_go_by_the_ending(ending: str, begins: bytes, tmp_path: Path) -> None:
    path = tmp_path / "new folder" / f"curves.{ending}"
    save_figure(Figure(figsize=(1, 1)), path)
    assert path.read_bytes().startswith(begins)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("name", ["curves", "curves.xyz", "curves.png.gz", ".png", "png"])
def test_other_endings_are_refused_before_anything_is_drawn(name: str, tmp_path: Path) -> None:
    message = "the name of a picture must end in one of png, pdf, svg, eps, jpg, tif, webp, got "
    for use in (_check_figure, lambda path: save_figure(Figure(), path)):
        with refused(ParameterError, message):
            use(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_paths_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    with refused(FileError, "cannot write .*: .* is not a writable folder"):
        save_figure(Figure(), tmp_path / "file" / "x.png")
    with refused(FileError, "cannot write .*: it is a folder"):
        save_figure(Figure(), tmp_path)
    with refused(ParameterError, "path must be the path of a file, got None"):
        save_figure(Figure(), None)  # type: ignore[arg-type]
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("problem", [OSError(28, "No space left on device"), KeyboardInterrupt])
def test_a_failed_save_keeps_the_old_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: Any
) -> None:
    path = tmp_path / "x.png"
    path.write_bytes(b"old")

    def fail(self: Figure, scratch: Path, **settings: Any) -> None:
        scratch.write_bytes(b"half")
        raise problem

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(FileError if isinstance(problem, OSError) else problem):
        save_figure(Figure(), path)
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["x.png"]


def test_pictures_are_the_same_every_time(result: xr.Dataset, tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        save_figure(draw_curves(result), tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_a_logarithmic_axis_on_demand(result: xr.Dataset) -> None:
    assert draw_curves(result).axes[0].get_yscale() == "linear"
    axes = draw_curves(result, "age", log=True).axes[0]
    assert axes.get_yscale() == "log"
    assert axes.get_ylim()[0] > 0
    below = result.copy(deep=True)
    below["regret_curve"] = below["regret_curve"] - 1000.0
    assert draw_curves(below, log=True).axes[0].get_yscale() == "symlog"
