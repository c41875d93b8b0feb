from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from freshband.channels import (
    BessonRandom,
    Fig2,
    Fig3Extreme,
    HardPiecewise,
    HardStationary,
    Piecewise,
    Switching,
    build,
    open_air,
)
from freshband.errors import ParameterError
from tests.channels.margins import assert_mean, assert_share, draw, drawn

PROBLEMS = {
    "besson-1": [
        (0.3, 0.5, 0.9), (0.3, 0.2, 0.9), (0.3, 0.2, 0.1), (0.7, 0.2, 0.1), (0.7, 0.5, 0.1),
    ],
    "besson-2": [
        (0.4, 0.5, 0.9), (0.5, 0.4, 0.7), (0.6, 0.3, 0.5), (0.7, 0.2, 0.3), (0.8, 0.1, 0.1),
    ],
    "besson-4": [
        (0.1, 0.5, 0.9), (0.3, 0.4, 0.1), (0.5, 0.3, 0.2), (0.7, 0.4, 0.3), (0.1, 0.5, 0.2),
    ],
}  # fmt: skip
BEGINS = {
    "besson-1": [1001, 2001, 3001, 4001],
    "besson-2": [1001, 2001, 3001, 4001],
    "besson-4": [2501, 3126, 3751, 4376],
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_besson_problems_are_as_published(name: str) -> None:
    stream = open_air(name, 5000, 0)
    means = stream.block(5000).means
    assert stream.breakpoints.tolist() == BEGINS[name]
    begins = [0, *(b - 1 for b in BEGINS[name])]
    assert [tuple(row) for row in means[begins].tolist()] == PROBLEMS[name]


def test_besson_problem_4_needs_eight_rounds() -> None:
    assert drawn("besson-4", 8).breakpoints.tolist() == [5, 6, 7, 8]
    with pytest.raises(ParameterError, match="rounds must be a whole number >= 8, got 7"):
        open_air("besson-4", 7, 0)


def besson_segments(model: BessonRandom, rounds: int, runs: int) -> list[Any]:
    """Return the distinct rows of means of several runs."""
    found = []
    for run in range(runs):
        stream = open_air(model, rounds, 0, run)
        means = stream.block(rounds).means
        found.append(means[[0, *(stream.breakpoints - 1)]])
    return found


def test_besson_random_moves_by_the_jumps_and_stays_inside() -> None:
    model = BessonRandom(min_gap=1, n_breakpoints=30)
    steps = np.concatenate([np.diff(rows, axis=0) for rows in besson_segments(model, 60, 40)])
    moved = np.abs(steps[steps != 0])
    assert moved.min() >= 0.05 - 1e-12
    assert moved.max() <= 0.3 + 1e-12
    assert_mean(moved, 0.175, 0.25 / math.sqrt(12))
    assert_share((steps != 0).sum(), 40 * 30 * 5, 0.5)
    for rows in besson_segments(model, 60, 10):
        assert rows.min() >= 0
        assert rows.max() <= 1


def test_besson_random_starts_uniform_and_moves_both_ways() -> None:
    model = BessonRandom(n_channels=500, n_breakpoints=1, p_change=1, min_gap=1)
    rows = besson_segments(model, 2, 1)[0]
    assert_mean(rows[0], 0.5, 1 / math.sqrt(12))
    inside = (rows[0] > 0.3) & (rows[0] < 0.7)  # where both ways are open
    assert_share((rows[1] > rows[0])[inside].sum(), inside.sum(), 0.5)
    assert (rows[1] > rows[0])[rows[0] < 0.05].all()
    assert (rows[1] < rows[0])[rows[0] > 0.95].all()


def test_besson_random_keeps_the_gap() -> None:
    with pytest.raises(ParameterError, match="min_gap must be at most 857 for 7 segments in 6000"):
        open_air("besson-random", 6000, 0)
    for run in range(20):
        places = [1, *drawn(BessonRandom(p_change=1), 8000, run=run).breakpoints, 8001]
        assert len(places) == 8
        assert np.diff(places).min() >= 1000


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"jump_low": 0.4}, "jump_low must be at most jump_high = 0.3, got 0.4"),
        ({"jump_high": 0.6}, r"jump_high must be a number in \[0, 0.5\], got 0.6"),
        ({"p_change": 2}, r"p_change must be a number in \[0, 1\], got 2"),
        ({"min_gap": 0}, "min_gap must be a whole number >= 1, got 0"),
    ],
)
def test_bad_besson_random(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        BessonRandom(**params)


@pytest.mark.parametrize(("n", "m", "rounds"), [(5, 2, 20_000), (30, 20, 400), (4, 1, 9)])
def test_hard_stationary_has_the_gap_of_theorem_2(n: int, m: int, rounds: int) -> None:
    means = draw(HardStationary(n_channels=n, n_clients=m), rounds).means
    gap = (n - m) / (4 * m * math.sqrt(n * rounds))
    assert sorted(means[0]) == [0.5] * (n - m) + [0.5 + gap] * m
    assert (means == means[0]).all()


def test_hard_stationary_hides_a_uniformly_random_set() -> None:
    model = HardStationary(n_channels=4, n_clients=2)
    sets = Counter(
        tuple(np.flatnonzero(draw(model, 100, run=run).means[0] > 0.5)) for run in range(1800)
    )
    assert len(sets) == 6
    for count in sets.values():
        assert_share(count, 1800, 1 / 6)


def test_hard_stationary_limits() -> None:
    assert (draw(HardStationary(n_channels=3, n_clients=3), 10).means == 0.5).all()
    with pytest.raises(ParameterError, match="n_clients must be at most n_channels = 5, got 6"):
        HardStationary(n_clients=6)
    with pytest.raises(ParameterError, match="rounds must be a whole number >= 29, got 28"):
        open_air(HardStationary(n_channels=30, n_clients=1), 28, 0)
    model = HardStationary(n_channels=30, n_clients=1)
    assert draw(model, 29).means.max() == pytest.approx(0.75, abs=0.01)
    assert draw(model, 29).means.max() <= 0.75


def test_hard_piecewise_is_the_instance_of_theorem_4() -> None:
    n, m, rounds = 5, 2, 1000
    gap = math.sqrt(n / (m * rounds))
    specials = []
    for run in range(500):
        means = draw(HardPiecewise(), rounds, run=run).means
        rows = means[:: rounds // n]
        assert (means == np.repeat(rows, rounds // n, axis=0)).all()
        special = int(np.flatnonzero(rows[:, 0] == 0.5)[0])
        specials.append(special)
        expected = np.tile([0.5 + gap] * m + [0.5] * (n - m), (n, 1))
        expected[special] = [0.5] * (n - m) + [0.5 + gap] * m
        np.testing.assert_array_equal(rows, expected)
    for interval in range(n):
        assert_share(specials.count(interval), 500, 1 / n)


def test_hard_piecewise_limits() -> None:
    with pytest.raises(ParameterError, match="n_channels must be at least 2 n_clients = 6, got 5"):
        HardPiecewise(n_clients=3)
    with pytest.raises(ParameterError, match="rounds must be a whole number >= 11, got 10"):
        open_air("hard-piecewise", 10, 0)
    assert draw("hard-piecewise", 11).means.max() < 1
    with pytest.raises(ParameterError, match="rounds must be a whole number >= 9, got 8"):
        open_air(HardPiecewise(n_channels=8, n_clients=4), 8, 0)


def assert_same_air(name: str, same_as: Any, rounds: int) -> None:
    ours, theirs = draw(name, rounds, seed=5), draw(same_as, rounds, seed=5)
    np.testing.assert_array_equal(ours.states, theirs.states)
    np.testing.assert_array_equal(ours.means, theirs.means)


def test_fig2_is_the_piecewise_default() -> None:
    assert_same_air("fig2", Piecewise(), 600)
    assert build("fig2").n_channels == 5
    assert len(drawn(Fig2(n_breakpoints=12), 600).breakpoints) == 12


def test_fig3_piecewise_has_two_breakpoints_among_thirty_channels() -> None:
    assert_same_air(
        "fig3-piecewise", Piecewise(n_channels=30, n_breakpoints=2, mean_low=0, mean_high=1), 250
    )
    assert drawn("fig3-piecewise", 250).breakpoints.tolist() == [84, 167]


def test_fig3_extreme_switches_channel_by_channel() -> None:
    same = Switching(n_channels=6, mean_low=0, mean_high=1, hazard=0.04, per_channel=True)
    assert_same_air("fig3-extreme", same, 250)
    changed = drawn(Fig3Extreme(), 20_000).changed
    assert_share(changed.sum(), 6 * 19_999, 0.04)
