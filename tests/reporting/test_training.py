"""Pictures of training: what is drawn is what the result holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from matplotlib.collections import PolyCollection, QuadMesh

from freshband.errors import FileError, ParameterError
from freshband.federated.loggers import TensorBoard, logging_to, scalars_of
from freshband.federated.result import collect_records
from freshband.federated.settings import Training
from freshband.reporting.curves import COLOURS, save_figure
from freshband.reporting.training import draw_comparison, draw_training
from tests.federated.recording import ACCURACY, AGES, make_record, make_records
from tests.simulation.refusing import refused

SETTINGS = Training(clients=3, rounds=4, scheduler="glr-cucb", matching="age", device="cpu")
POLICIES = ["random", "cucb", "glr-cucb"]


@pytest.fixture
def result() -> xr.Dataset:
    return collect_records(make_records(), SETTINGS)


@pytest.fixture
def comparison() -> xr.Dataset:
    """Three policies, two runs; each policy and run differs from the others by a known amount."""
    rows = []
    for place, _ in enumerate(POLICIES):
        runs = []
        for run in range(2):
            shift = 0.01 * place + 0.02 * run
            records = [make_record(t, accuracy=ACCURACY[t - 1] + shift) for t in range(1, 5)]
            runs.append(collect_records(records, SETTINGS))
        rows.append(xr.concat(runs, "run", combine_attrs="drop"))
    both = xr.concat(rows, "policy", combine_attrs="drop")
    both = both.assign_coords(policy=POLICIES, run=[0, 1])
    regret = both.ages.sum("client").cumsum("round") * (1.0 + both.run)
    config = {
        "settings": SETTINGS.model_dump(mode="json"),
        "policies": POLICIES,
        "policy_options": {},
        "runs": 2,
    }
    return both.assign(regret=regret, regret_fixed=regret * np.nan).assign_attrs(
        format="freshband comparison 1", config=json.dumps(config)
    )


def y_of(line: Any) -> list[float]:
    return [float(y) for y in line.get_ydata()]


# ---------------------------------------------------------------------------------------- one run


def test_four_panels_of_a_run(result: xr.Dataset) -> None:
    figure = draw_training(result)
    accuracy, ages, variance, shares = figure.axes[:4]
    line = next(line for line in accuracy.lines if line.get_label() == "test set")
    assert [float(x) for x in line.get_xdata()] == [1, 2, 4]  # nobody looked in round 3
    assert y_of(line) == [0.4, 0.7, 0.6]
    (painted,) = [each for each in ages.collections if isinstance(each, QuadMesh)]
    np.testing.assert_array_equal(painted.get_array(), np.array(AGES).T)
    assert y_of(variance.lines[0]) == pytest.approx([0, *result.cumulative_variance.values])
    assert [bar.get_height() for bar in shares.patches] == [0.5, 0.25, 0.75]
    labels = [(axes.get_xlabel(), axes.get_ylabel()) for axes in (accuracy, ages, variance, shares)]
    assert labels == [
        ("round", "accuracy"),
        ("round", "client"),
        ("round", "cumulative AoI variance"),
        ("client", "rounds delivered"),
    ]


def test_changes_noticed_are_marked(result: xr.Dataset) -> None:
    variance = draw_training(result).axes[2]
    marks = [line for line in variance.lines if line.get_label() == "change noticed"]
    assert [mark.get_xdata()[0] for mark in marks] == [2]
    quiet = result.assign(alarm=result.alarm * 0 - 1)
    assert draw_training(quiet).axes[2].get_legend() is None


def test_the_title_tells_what_was_run(result: xr.Dataset) -> None:
    assert draw_training(result).get_suptitle() == (
        "digits over fig3-piecewise: M = 3, N = 5, seed 0; glr-cucb+age, 4 rounds"
    )


def test_a_run_nobody_looked_at_can_be_drawn(tmp_path: Path) -> None:
    blind = collect_records([make_record(3)], SETTINGS)
    save_figure(draw_training(blind), tmp_path / "blind.png")
    assert (tmp_path / "blind.png").exists()


# ------------------------------------------------------------------------------------- comparison


def test_one_line_and_one_band_a_policy_in_every_panel(comparison: xr.Dataset) -> None:
    figure = draw_comparison(comparison)
    assert len(figure.axes) == 6
    for axes in figure.axes:
        assert [line.get_label() for line in axes.lines] == POLICIES
        assert [line.get_color() for line in axes.lines] == list(COLOURS[:3])
        bands = [each for each in axes.collections if isinstance(each, PolyCollection)]
        assert len(bands) == 3
        assert axes.get_title()
        assert axes.get_xlabel()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == POLICIES
    assert figure.get_suptitle().endswith("seed 0; 2 runs; band: 95 % interval of the mean")


def test_what_the_panels_show(comparison: xr.Dataset) -> None:
    regret, variance, shares, accuracy, _, clients = draw_comparison(comparison).axes
    mean = comparison.regret.sel(policy="cucb").mean("run").values
    assert y_of(regret.lines[1]) == pytest.approx([0, *mean])
    assert y_of(variance.lines[0])[-1] == pytest.approx(np.array(AGES).var(axis=1).sum())
    assert y_of(accuracy.lines[1]) == pytest.approx([0.42, 0.72, 0.62])  # 0.01 and half of 0.02
    assert y_of(shares.lines[0]) == [0.25, 0.5, 0.75]  # ranked
    assert y_of(clients.lines[0]) == pytest.approx([0.4, 0.8, 1.2])


def test_bands_are_intervals(comparison: xr.Dataset) -> None:
    regret = draw_comparison(comparison).axes[0]
    ends = comparison.regret.sel(policy="random").isel(round=-1).values
    highest = ends.mean() + 12.7062047 * ends.std(ddof=1) / np.sqrt(2)  # Student, two runs
    band = next(each for each in regret.collections if isinstance(each, PolyCollection))
    assert band.get_paths()[0].vertices[:, 1].max() == pytest.approx(highest)


def test_bands_of_shares_end_at_0_and_100_percent(comparison: xr.Dataset) -> None:
    far = comparison.accuracy + 0.3 * (2 * comparison.run - 1)  # the runs differ by 60 %
    axes = draw_comparison(comparison.assign(accuracy=far)).axes[3]
    bands = [each for each in axes.collections if isinstance(each, PolyCollection)]
    for band in bands:
        ends = band.get_paths()[0].vertices[:, 1]
        assert (ends.min(), ends.max()) == (0, 1)


def test_without_means_the_fixed_set_is_the_yardstick(comparison: xr.Dataset) -> None:
    swapped = comparison.assign(regret=comparison.regret_fixed, regret_fixed=comparison.regret)
    regret = draw_comparison(swapped).axes[0]
    assert regret.get_title() == "AoI regret, against the best fixed set"
    assert y_of(regret.lines[0])[-1] > 0


def test_a_single_run_has_no_bands(comparison: xr.Dataset) -> None:
    config = json.loads(comparison.attrs["config"])
    single = comparison.isel(run=[0]).assign_attrs(config=json.dumps({**config, "runs": 1}))
    figure = draw_comparison(single)
    assert not any(axes.collections for axes in figure.axes)
    assert figure.get_suptitle().endswith("seed 0; 1 run")


def test_pictures_are_the_same_every_time(comparison: xr.Dataset, tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        save_figure(draw_comparison(comparison), tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


@pytest.mark.parametrize("draw", [draw_training, draw_comparison])
@pytest.mark.parametrize("other", [None, "result.nc", xr.Dataset()])
def test_only_results_can_be_drawn(draw: Any, other: Any) -> None:
    with refused(ParameterError, "result must come from "):
        draw(other)


# ---------------------------------------------------------------------------------------- scalars


def test_scalars_of_a_round() -> None:
    found = scalars_of(make_record(2))
    assert found["accuracy"] == 0.7
    assert found["age/mean"] == 2.0
    assert found["age/oldest"] == 3.0
    assert found["round/delivered"] == 1.0
    assert {"accuracy", "loss", "accuracy_spread"}.isdisjoint(scalars_of(make_record(3)))


def test_scalars_can_be_read_back(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for done, rounds in ((0, [1, 2, 3]), (2, [3, 4])):  # the second goes on after round 2
        board = TensorBoard(tmp_path / "board")
        with logging_to([board], Training(), done=done) as write:
            for t in rounds:
                write(make_record(t))
    events = EventAccumulator(str(tmp_path / "board"))
    events.Reload()
    ages = {event.step: event.value for event in events.Scalars("age/mean")}
    assert ages == pytest.approx({t: np.mean(AGES[t - 1]) for t in (1, 2, 3, 4)})
    assert [event.step for event in events.Scalars("accuracy")] == [1, 2, 4]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    board = TensorBoard(tmp_path / "file/board")
    with refused(FileError, "cannot write .*file/board"), logging_to([board], Training()):
        pass
