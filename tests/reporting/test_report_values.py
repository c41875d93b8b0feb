"""Reports: what the page shows is what the files hold."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from freshband.channels.base import open_air
from freshband.reporting._air import COLUMNS, Air, cut_rounds, pool
from freshband.reporting._page.air import Play, channel_map
from freshband.reporting._page.charts import POINTS, Series, curves
from tests.reporting.pages import report_of
from tests.reporting.results import (
    POLICIES,
    SETTINGS,
    make_comparison,
    make_simulation,
    make_training,
)

# ------------------------------------------------------------------------------------------ values


def test_curves_are_means_with_bands_of_one_standard_error() -> None:
    values = np.array([[1.0, 2.0, 4.0], [3.0, 2.0, 8.0]])
    chart = curves("k", "t", "s", {"mine": Series(np.array([1, 2, 3]), values)}, y_title="y")
    band, line = chart.to_json()["traces"]
    assert line["y"] == [2, 2, 6]
    assert band["y"] == [3, 2, 8, 4, 2, 1]  # there along the upper edge, back along the lower
    assert band["x"] == [1, 2, 3, 3, 2, 1]
    assert chart.table.rows == [["mine", "2.0 ± 1.0", "2", "6.0 ± 2.0"]]


def test_rounds_without_a_look_are_left_out() -> None:
    values = np.array([[0.5, np.nan, 0.7]])
    chart = curves("k", "t", "s", {"mine": Series(np.array([1, 2, 3]), values)}, y_title="y")
    assert chart.traces[0].x == (1, 3)


def test_long_curves_are_thinned_but_keep_their_ends() -> None:
    x = np.arange(100_000)
    chart = curves("k", "t", "s", {"mine": Series(x, x[None] * 1.0)}, y_title="y")
    assert len(chart.traces[0].x) == POINTS
    assert (chart.traces[0].x[0], chart.traces[0].x[-1]) == (0, 99_999)


def test_the_beginning_does_not_squeeze_the_rest() -> None:
    x = np.arange(1, 101)
    values = np.where(x < 10, 0.0, 0.9 + x / 1000)[None]
    chart = curves("k", "t", "s", {"mine": Series(x, values)}, y_title="y", late=True)
    low, high = chart.layout.yaxis.range
    assert 0.9 < low < 0.91
    assert 1.0 < high < 1.01


def test_columns_average_over_what_is_known() -> None:
    cuts = cut_rounds(10_000)
    assert len(cuts) == COLUMNS + 1
    assert (cuts[0], cuts[-1]) == (0, 10_000)
    values = np.array([[1.0, np.nan], [3.0, np.nan], [5.0, 7.0]])
    np.testing.assert_array_equal(pool(values, np.array([0, 2, 3])), [[2.0, np.nan], [5.0, 7.0]])


def test_accuracy_of_a_comparison(tmp_path: Path) -> None:
    figure = report_of(make_comparison(), tmp_path).figures["r0-accuracy"]
    lines = [trace for trace in figure["traces"] if "name" in trace]
    assert [line["name"] for line in lines] == POLICIES
    assert lines[1]["x"] == [1, 2, 4]
    np.testing.assert_allclose(lines[1]["y"], np.array([0.4, 0.7, 0.6]) + 0.02)


def test_channel_map_shows_the_air_of_the_run(tmp_path: Path) -> None:
    traces = report_of(make_training(), tmp_path).figures["r0-channels"]["traces"]
    rates, states, beliefs, chosen, *marks = traces
    stream = open_air(SETTINGS.build_channels(), 4, SETTINGS.seed, SETTINGS.run)
    block = stream.block(4)
    np.testing.assert_allclose(rates["z"], block.means.T, rtol=1e-4)
    np.testing.assert_array_equal(states["z"], block.states.T)
    assert [row[0] for row in beliefs["z"]] == [0.1, 0.3, 0.5, 0.7, 0.9]
    assert [row[0] for row in chosen["z"]] == [1, 0, 1, 0, 1]
    true = next(mark for mark in marks if mark["meta"]["group"] == "true")
    noticed = next(mark for mark in marks if mark["meta"]["group"] == "noticed")
    assert sorted(set(true["customdata"])) == stream.breakpoints.tolist()
    assert len(true["x"]) == stream.changed.sum()
    assert (noticed["x"], noticed["y"]) == ([2], [3])


def test_changes_noticed_are_told_against_true_ones() -> None:
    changed = np.array([[True, False], [False, True]])
    air = Air(np.arange(11), np.full((10, 2), 0.5), np.ones((10, 2)), np.array([3, 7]), changed)
    alarms = np.full(10, -1)
    alarms[4] = 0  # at the end of round 5
    play = Play(np.zeros((10, 1), int), alarms, np.full((10, 2), np.nan))
    table = channel_map(air, {"mine": play}, run=0).table
    assert table.head == ["first round", "channels that change", "noticed"]
    assert table.rows == [["3", "0", "round 5 (+2)"], ["7", "1", "not"]]


@pytest.mark.parametrize(("breakpoints", "mode"), [(100, "markers"), (250, "lines"), (400, None)])
def test_many_changes_are_marked_by_less(breakpoints: int, mode: str | None) -> None:
    changed = np.ones((breakpoints, 6), bool)
    begins = np.arange(2, breakpoints + 2)
    air = Air(np.arange(501), np.full((500, 6), 0.5), np.ones((500, 6)), begins, changed)
    traces = channel_map(air, {}, run=0).traces
    true = [one for one in traces if one.meta and one.meta.get("group") == "true"]
    assert [one.mode for one in true] == ([] if mode is None else [mode])


def test_only_detectors_can_miss_a_change(tmp_path: Path) -> None:
    quiet = {"glr-cucb": {"delta": 1e-300}}  # it looks, and notices nothing
    text = report_of(make_simulation(rounds=60, policy_options=quiet), tmp_path).text
    for name in ("random", "cucb"):
        assert f"{name} 5 no detector — — —" in text
    assert "glr-cucb 5 0 5 0 —" in text
    assert re.search(r"random [^a-z]* — cucb [^a-z]* — glr-cucb [^a-z]* 0 ", text)  # alarms


def test_only_detectors_can_miss_a_change_in_training(tmp_path: Path) -> None:
    comparison = make_comparison()
    still = comparison.assign(alarm=xr.full_like(comparison.alarm, -1))
    text = report_of(still, tmp_path).text
    for name in ("random", "cucb"):
        assert f"{name} 2 no detector — — —" in text
    assert "glr-cucb 2 0 2 0 —" in text
    assert "noticed by" not in text  # the map's table has a column for the one detector only
    blind = SETTINGS.model_copy(update={"policy": "random"})
    text = report_of(make_training(blind, alarm=-1), tmp_path).text
    assert "random+age 2 no detector — — —" in text
    assert "first round channels that change 2 " in text


def test_maps_begin_with_the_freshest_policy(tmp_path: Path) -> None:
    comparison = make_comparison()
    older = xr.where(comparison.policy == "cucb", 0, 1)
    document = report_of(comparison.assign(ages=comparison.ages + older), tmp_path)
    chosen = [own["value"] for own in document.all("option") if "selected" in own]
    assert chosen == ["1", "1", "1"]
