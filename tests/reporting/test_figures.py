"""Pictures of experiments show the means over runs of what they are given, with 95 % intervals."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from freshband.experiments.pictures import Panel, Picture, Series
from freshband.reporting._figures import draw_picture
from freshband.reporting.curves import COLOURS

VALUES = np.array([[1.0, 2.0, 6.0], [4.0, 5.0, 6.0]])  # two positions, three runs
MEANS = [3.0, 5.0]
T = 4.30265273  # of Student with three runs
ERRORS = [T * np.std(runs, ddof=1) / np.sqrt(3) for runs in ([1, 2, 6], [4, 5, 6])]
SERIES = Series("one", np.array([1, 2]), VALUES, colour=1, line="--")
TICKS = [(1, "first"), (2, "second")]


def test_curves_have_bands() -> None:
    (axes,) = draw_picture(Picture([Panel("curves", [SERIES], "title", "x", "y")])).axes
    (line,) = axes.lines
    assert line.get_xydata().tolist() == [[1, 3], [2, 5]]
    assert (line.get_color(), line.get_linestyle()) == (COLOURS[1], "--")
    (band,) = axes.collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert heights.min() == pytest.approx(min(m - e for m, e in zip(MEANS, ERRORS, strict=True)))
    assert heights.max() == pytest.approx(max(m + e for m, e in zip(MEANS, ERRORS, strict=True)))
    assert (axes.get_title("left"), axes.get_xlabel(), axes.get_ylabel()) == ("title", "x", "y")
    assert axes.get_ylim()[0] == 0


def test_curves_of_one_run_have_none_and_curves_below_zero_are_shown() -> None:
    single = dataclasses.replace(SERIES, values=-VALUES[:, :1])
    (axes,) = draw_picture(Picture([Panel("curves", [single])])).axes
    assert not axes.collections
    assert axes.get_ylim()[0] < -4


@pytest.mark.parametrize("kind", ["points", "rows"])
def test_points_have_error_bars_and_named_positions(kind: str) -> None:
    (axes,) = draw_picture(Picture([Panel(kind, [SERIES], ticks=TICKS)])).axes  # type: ignore[arg-type]
    along = 0 if kind == "points" else 1
    (container,) = axes.containers
    points, _, (bars,) = container.lines
    assert points.get_xydata()[:, 1 - along].tolist() == MEANS
    ends = [segment[:, 1 - along] for segment in bars.get_segments()]
    assert [np.ptp(end) / 2 for end in ends] == pytest.approx(ERRORS)
    axis = axes.xaxis if kind == "points" else axes.yaxis
    assert [label.get_text() for label in axis.get_ticklabels()] == ["first", "second"]


def test_bars_stand_side_by_side() -> None:
    other = dataclasses.replace(SERIES, label="other", values=2 * VALUES)
    (axes,) = draw_picture(Picture([Panel("bars", [SERIES, other], ticks=TICKS)])).axes
    assert [bar.get_height() for bar in axes.patches] == [3, 5, 6, 10]
    centres = [bar.get_x() + bar.get_width() / 2 for bar in axes.patches]
    assert centres == pytest.approx([0.8, 1.8, 1.2, 2.2])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["one", "other"]


def test_bars_of_other_sizes_and_fewer_runs() -> None:
    values = np.array([[1.0, 3.0, np.nan], [900.0, 1000.0, 1100.0]])
    some = dataclasses.replace(SERIES, values=values)
    (axes,) = draw_picture(Picture([Panel("bars", [some], ticks=TICKS, log=True)])).axes
    assert axes.get_yscale() == "log"
    assert [bar.get_height() for bar in axes.patches] == [2, 1000]


def test_panels_stand_two_in_a_row() -> None:
    panel = Panel("curves", [SERIES], percent=True)
    figure = draw_picture(Picture([panel] * 3))
    assert len(figure.axes) == 3
    assert figure.get_size_inches().tolist() == pytest.approx([9.5, 7.2])
    assert draw_picture(Picture([panel], size=(5, 4))).get_size_inches().tolist() == [5, 4]
    assert figure.axes[0].yaxis.get_major_formatter()(0.5) == "50%"
