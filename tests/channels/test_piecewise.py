from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshband.channels import Piecewise, open_air
from freshband.channels.piecewise import _segment_lengths
from freshband.errors import ParameterError
from tests.channels.margins import assert_mean, assert_share, draw, drawn


def test_defaults_are_five_equal_breakpoints() -> None:
    assert drawn("piecewise", 20_000).breakpoints.tolist() == [3334, 6667, 10_001, 13_334, 16_667]


def test_all_channels_change_by_default() -> None:
    assert drawn("piecewise", 600).changed.all()


@pytest.mark.parametrize("params", [{"n_breakpoints": 3}, {"n_segments": 4}])
def test_breakpoints_and_segments_count_differently(params: dict[str, Any]) -> None:
    assert drawn(Piecewise(**params), 100).breakpoints.tolist() == [26, 51, 76]


def test_no_breakpoint_is_stationary() -> None:
    stream = drawn(Piecewise(n_breakpoints=0), 100)
    assert len(stream.breakpoints) == 0
    assert stream.changed.shape == (0, 5)


def test_explicit_breakpoints_and_means() -> None:
    model = Piecewise(means=[[0.1, 0.2], [0.3, 0.2], [0.4, 0.5]], breakpoints=[3, 4])
    block = draw(model, 5)
    assert block.means.tolist() == [[0.1, 0.2], [0.1, 0.2], [0.3, 0.2], [0.4, 0.5], [0.4, 0.5]]
    assert drawn(model, 5).changed.tolist() == [[True, False], [True, True]]
    assert Piecewise(breakpoints=np.array([3, 4])) == Piecewise(breakpoints=[3, 4])


def test_no_explicit_breakpoints_is_one_segment() -> None:
    assert len(drawn(Piecewise(breakpoints=[]), 50).breakpoints) == 0


def test_rows_alone_set_the_number_of_segments() -> None:
    assert drawn(Piecewise(means=[[0.1], [0.2], [0.3]]), 9).breakpoints.tolist() == [4, 7]


def test_equal_rows_make_no_breakpoint() -> None:
    assert drawn(Piecewise(means=[[0.1], [0.1], [0.3]]), 9).breakpoints.tolist() == [7]


def test_the_means_are_honoured_in_every_segment() -> None:
    model = Piecewise(means=[[0.2, 0.9], [0.7, 0.9], [0.5, 0.1]])
    states = draw(model, 60_000).states.reshape(3, 20_000, 2).sum(axis=1)
    assert model.means is not None
    for hits, mean in zip(states.ravel(), np.ravel(model.means), strict=True):
        assert_share(hits, 20_000, mean)


def test_means_are_uniform_in_their_range() -> None:
    model = Piecewise(n_channels=40, n_breakpoints=99, mean_low=0.0, mean_high=0.5)
    means = draw(model, 100).means
    assert_mean(means, 0.25, 0.5 / np.sqrt(12))
    assert means.max() <= 0.5


def test_p_change_is_the_share_of_channels_that_change() -> None:
    stream = drawn(Piecewise(n_channels=8, n_breakpoints=999, p_change=0.3), 3000)
    assert_share(stream.changed.sum(), 8 * 999, 0.3)
    none_changes = 0.7**8  # such a breakpoint is none
    assert_share(len(stream.breakpoints), 999, 1 - none_changes)


def test_p_change_zero_never_changes() -> None:
    assert len(drawn(Piecewise(p_change=0.0), 300).breakpoints) == 0


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    n_segments=st.integers(1, 12),
    min_gap=st.integers(1, 9),
    spare=st.integers(0, 50),
    seed=st.integers(0, 10_000),
)
def test_random_places_keep_the_gap(n_segments: int, min_gap: int, spare: int, seed: int) -> None:
    rounds = n_segments * min_gap + spare
    lengths = _segment_lengths(rounds, n_segments, min_gap, np.random.default_rng(seed))
    assert len(lengths) == n_segments
    assert lengths.sum() == rounds
    assert lengths.min() >= min_gap


def test_random_places_are_uniform() -> None:
    rng = np.random.default_rng(0)
    counts = Counter(tuple(_segment_lengths(8, 3, 2, rng).tolist()) for _ in range(6000))
    assert len(counts) == 6  # ways to write 8 as three parts of at least 2
    for count in counts.values():
        assert_share(count, 6000, 1 / 6)


def test_random_places_differ_from_run_to_run_and_not_with_the_states() -> None:
    model = Piecewise(spacing="random")
    a, b = drawn(model, 5000, run=0).breakpoints, drawn(model, 5000, run=1).breakpoints
    assert a.tolist() != b.tolist()


def test_as_many_breakpoints_as_fit() -> None:
    assert len(drawn(Piecewise(n_breakpoints=99), 100).breakpoints) == 99


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_breakpoints": -1}, "n_breakpoints must be a whole number >= 0 or None, got -1"),
        ({"n_segments": 0}, "n_segments must be a whole number >= 1 or None, got 0"),
        ({"p_change": 1.5}, "p_change must be a number in [0, 1], got 1.5"),
        ({"p_change": float("nan")}, "p_change must be a number in [0, 1], got nan"),
        ({"min_gap": 0}, "min_gap must be a whole number >= 1, got 0"),
        ({"spacing": "even"}, "spacing must be one of 'equal', 'random', got 'even'"),
        (
            {"n_breakpoints": 2, "n_segments": 3},
            "n_segments must be left out when n_breakpoints is given, got 3",
        ),
        (
            {"breakpoints": [5], "n_breakpoints": 1},
            "n_breakpoints must be left out when breakpoints is given, got 1",
        ),
        (
            {"breakpoints": [5], "n_segments": 2},
            "n_segments must be left out when breakpoints is given, got 2",
        ),
        (
            {"breakpoints": [5], "spacing": "random"},
            "spacing must be left out when breakpoints is given, got 'random'",
        ),
        (
            {"breakpoints": [5], "min_gap": 2},
            "min_gap must be left out when breakpoints is given, got 2",
        ),
        ({"breakpoints": [5, 5]}, "breakpoints must be increasing, got [5, 5]"),
        ({"breakpoints": [9, 5]}, "breakpoints must be increasing, got [9, 5]"),
        ({"breakpoints": [1]}, "breakpoints must be a list of numbers >= 2 or None, got 1"),
        ({"breakpoints": 7}, "breakpoints must be a list of numbers >= 2 or None, got 7"),
        (
            {"means": [0.5, 0.5]},
            "means must be a matrix, a list of equally long lists, of numbers in [0, 1], "
            "got [0.5, 0.5]",
        ),
        (
            {"means": [[0.5, 0.5], [0.5]]},
            "means must be a matrix, a list of equally long lists, of numbers in [0, 1], "
            "got rows of different lengths",
        ),
        (
            {"means": [[0.5], [-1]]},
            "means must be a matrix, a list of equally long lists, of numbers in [0, 1], got -1.0",
        ),
        (
            {"means": [[0.5], [0.6]], "n_breakpoints": 2},
            "means must have a row for each of 3 segments, got 2",
        ),
        (
            {"means": [[0.5], [0.6]], "breakpoints": [4, 6]},
            "means must have a row for each of 3 segments, got 2",
        ),
        (
            {"means": [[0.5], [0.6]], "p_change": 0.5},
            "p_change must be left out when means is given, got 0.5",
        ),
        (
            {"means": [[0.5], [0.6]], "mean_high": 0.5},
            "mean_high must be left out when means is given, got 0.5",
        ),
        (
            {"means": [[0.5], [0.6]], "n_channels": 4},
            "means must have n_channels = 4 columns, got 1",
        ),
    ],
)
def test_bad_parameters(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        Piecewise(**params)
    assert str(caught.value) == message


TOO_FEW = (
    "n_breakpoints must be at most rounds - 1 = 9, got 10: play more rounds, or take channels that "
    "change less often"
)


@pytest.mark.parametrize(
    ("params", "rounds", "message"),
    [
        ({"n_breakpoints": 10}, 10, TOO_FEW),
        ({"n_segments": 11}, 10, TOO_FEW),
        ({"breakpoints": [5, 11]}, 10, "breakpoints must be at most rounds = 10, got 11"),
        (
            {"n_breakpoints": 2, "min_gap": 4},
            10,
            "min_gap must be at most 3 for 3 segments in 10 rounds, got 4",
        ),
        (
            {"n_breakpoints": 2, "min_gap": 4, "spacing": "random"},
            11,
            "min_gap must be at most 3 for 3 segments in 11 rounds, got 4",
        ),
    ],
)
def test_what_does_not_fit_the_rounds(params: dict[str, Any], rounds: int, message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        open_air(Piecewise(**params), rounds, 0)
    assert str(caught.value) == message
