from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshband.channels import Jammer
from freshband.channels.streams import _FRAME
from freshband.errors import ParameterError
from tests.channels.margins import assert_mean, assert_share, draw, drawn

FREE = [0.2, 0.9, 0.6, 0.4, 0.8]


def jammed(model: Jammer, rounds: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which channels are blocked in which round; all free means are above 0."""
    return draw(model, rounds, seed).means == 0


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    pattern=st.sampled_from(["sweep", "random", "block"]),
    budget=st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.29, 0.57, 1.0])),
    dwell=st.integers(1, 30),
    width=st.integers(1, 5),
    oblivious=st.booleans(),
    rounds=st.integers(1, 400),
    seed=st.integers(0, 1000),
)
def test_the_budget_is_kept_and_spent(
    pattern: Any, budget: float, dwell: int, width: int, oblivious: bool, rounds: int, seed: int
) -> None:
    dwell = 10 if pattern == "block" else dwell
    model = Jammer(
        means=FREE, pattern=pattern, budget=budget, dwell=dwell, width=width, oblivious=oblivious
    )
    plan = jammed(model, rounds, seed)
    on = plan.any(axis=1)
    assert (plan.sum(axis=1)[on] == width).all()
    assert on.sum() <= budget * rounds + 1e-9
    spent = on.sum() + (1 if pattern == "block" else dwell)
    lost = dwell if rounds % dwell and pattern != "block" else 0  # the last period may be short
    assert spent + lost > budget * rounds - 1e-6


def test_free_channels_keep_their_means_and_blocked_ones_are_bad() -> None:
    block = draw(Jammer(means=FREE, width=2), 5000)
    assert set(np.unique(block.means)) == {0.0, *FREE}
    assert not block.states[block.means == 0].any()
    free = block.means[:, 1] > 0
    assert_share(block.states[free, 1].sum(), free.sum(), 0.9)


def test_a_sweep_takes_the_channels_in_turn() -> None:
    plan = jammed(Jammer(means=FREE, budget=1, dwell=3, width=2), 45)
    first = np.flatnonzero(plan[0])
    start = 4 if set(first) == {0, 4} else first[0]
    for period in range(15):
        rows = plan[3 * period : 3 * period + 3]
        expected = {(start + 2 * period) % 5, (start + 2 * period + 1) % 5}
        assert all(set(np.flatnonzero(row)) == expected for row in rows)


def test_a_sweep_reaches_every_channel_equally_whatever_the_budget() -> None:
    counts = jammed(Jammer(means=FREE, budget=0.5, dwell=4), 20_000).sum(axis=0)
    assert counts.sum() == 10_000
    assert counts.max() - counts.min() <= 4


def test_a_sweep_begins_anywhere() -> None:
    model = Jammer(means=FREE, budget=1)
    firsts = [int(np.flatnonzero(jammed(model, 1, seed))[0]) for seed in range(100)]
    assert set(firsts) == set(range(5))


def test_random_targets_are_uniform_and_independent() -> None:
    plan = jammed(Jammer(means=FREE, pattern="random", budget=1, dwell=1, width=2), 20_000)
    for hits in plan.sum(axis=0):
        assert_share(hits, 20_000, 2 / 5)
    again = (plan[1:] & plan[:-1])[:, 0].sum()
    assert_share(again, 19_999, (2 / 5) ** 2)


def test_an_informed_jammer_picks_good_channels_more_often() -> None:
    model = Jammer(means=FREE, pattern="random", budget=1, dwell=1, oblivious=False)
    plan = jammed(model, 20_000)
    for hits, mean in zip(plan.sum(axis=0), FREE, strict=True):
        assert_share(hits, 20_000, mean / sum(FREE))


def test_an_informed_jammer_spares_dead_channels() -> None:
    model = Jammer(means=[0.5, 0, 0.5], pattern="random", budget=1, dwell=1, oblivious=False)
    free = draw(model, 200).means
    assert ((free == 0).sum(axis=1) == 2).all()  # the dead one and the one hit


def test_an_informed_sweep_begins_with_the_best() -> None:
    plan = jammed(Jammer(means=FREE, budget=1, dwell=1, oblivious=False), 5)
    assert [int(np.flatnonzero(row)[0]) for row in plan] == [1, 4, 2, 3, 0]


def test_periods_are_on_in_a_uniformly_random_choice() -> None:
    model = Jammer(means=FREE, pattern="random", budget=0.25, dwell=2)
    hits = sum(jammed(model, 8, seed).any(axis=1) for seed in range(3000))
    for count in hits:  # one of four periods
        assert_share(count, 3000, 1 / 4)


def test_the_choice_stays_uniform_across_frames() -> None:
    model = Jammer(means=[0.5], budget=0.3, dwell=1)
    counts = []
    for seed in range(8):
        on = jammed(model, 20_000, seed)[:, 0]
        assert on.sum() == 6000
        counts.append(int(on[:_FRAME].sum()))
    spread = np.sqrt(_FRAME * 0.3 * 0.7 * (20_000 - _FRAME) / 19_999)  # hypergeometric
    assert_mean(counts, _FRAME * 0.3, spread)
    assert len(set(counts)) > 1  # not dealt out evenly to the frames


@pytest.mark.parametrize(("budget", "rounds", "paid"), [(0.57, 100, 57), (0.29, 100, 29)])
def test_a_budget_means_what_its_decimals_say(budget: float, rounds: int, paid: int) -> None:
    assert jammed(Jammer(means=FREE, budget=budget, dwell=1), rounds).any(axis=1).sum() == paid


def test_a_block_is_one_attack_on_the_same_channels() -> None:
    model = Jammer(means=FREE, pattern="block", budget=0.3, width=2, oblivious=False)
    stream = drawn(model, 1000)
    plan = jammed(model, 1000)
    on = np.flatnonzero(plan.any(axis=1))
    assert len(on) == 300
    assert on[-1] - on[0] == 299
    assert set(np.flatnonzero(plan[on[0]])) == {1, 4}  # the best two
    assert stream.breakpoints.tolist() == [on[0] + 1, on[-1] + 2]


def test_a_block_may_begin_anywhere_and_hit_anyone() -> None:
    model = Jammer(means=FREE, pattern="block", budget=0.5)
    plans = [jammed(model, 4, seed) for seed in range(1200)]
    begins = [int(plan.any(axis=1).argmax()) for plan in plans]
    targets = [int(plan.any(axis=0).argmax()) for plan in plans]
    for begin in range(3):
        assert_share(begins.count(begin), 1200, 1 / 3)
    for target in range(5):
        assert_share(targets.count(target), 1200, 1 / 5)


@pytest.mark.parametrize("pattern", ["sweep", "random", "block"])
def test_no_budget_no_jamming(pattern: Any) -> None:
    assert len(drawn(Jammer(pattern=pattern, budget=0), 500).breakpoints) == 0


def test_a_budget_below_one_period_is_not_spent() -> None:
    assert not jammed(Jammer(means=FREE, budget=0.09), 100).any()


def test_free_means_are_drawn_once_in_their_range() -> None:
    means = draw(Jammer(mean_low=0.3, mean_high=0.5, width=2), 500).means
    levels = {tuple(sorted(set(column))) for column in means.T}
    assert all(low == 0 and 0.3 <= high <= 0.5 for low, high in levels)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"pattern": "zigzag"}, "pattern must be one of 'sweep', 'random', 'block', got 'zigzag'"),
        ({"width": 0}, "width must be a whole number >= 1, got 0"),
        ({"width": 6}, "width must be at most n_channels = 5, got 6"),
        ({"means": [0.5, 0.5], "width": 3}, "width must be at most n_channels = 2, got 3"),
        ({"budget": 1.2}, "budget must be a number in [0, 1], got 1.2"),
        ({"budget": float("nan")}, "budget must be a number in [0, 1], got nan"),
        ({"dwell": 0}, "dwell must be a whole number >= 1, got 0"),
        ({"dwell": 1.5}, "dwell must be a whole number >= 1, got 1.5"),
        ({"oblivious": 3}, "oblivious must be true or false, got 3"),
        (
            {"pattern": "block", "dwell": 5},
            "dwell must be left out when pattern='block' is given, got 5",
        ),
        ({"means": [0.5, 2]}, "means must be a list of numbers in [0, 1], got 2.0"),
        ({"means": [0.5], "n_channels": 3}, "means must have n_channels = 3 columns, got 1"),
        (
            {"means": [0.5], "mean_low": 0.3},
            "mean_low must be left out when means is given, got 0.3",
        ),
    ],
)
def test_bad_parameters(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        Jammer(**params)
    assert str(caught.value) == message
