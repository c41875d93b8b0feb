"""Change-point Thompson sampling against the recursion over all run lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from freshband.schedulers.base import means, select, update, update_late
from freshband.schedulers.bocpd_thompson import BocpdThompson
from tests.reference.run_lengths import RunLengths

rounds_of = st.lists(st.dictionaries(st.integers(0, 2), st.integers(0, 1), max_size=2), max_size=25)


def start(**options: Any) -> Any:
    return BocpdThompson(**options).start(2, 3, np.random.default_rng(0), None)


def told(state: Any) -> list[float]:
    out = np.zeros(3)
    means(state, out)
    return list(map(float, out))


def hear(state: Any, t: int, heard: dict[int, int]) -> None:
    pairs = [*heard.items(), *[(-1, -1)] * (2 - len(heard))]
    channels, outcomes = (np.array(column) for column in zip(*pairs, strict=True))
    assert update(state, t, channels, outcomes, np.zeros(2, np.int8)) == -1


@given(rounds_of, st.floats(0.001, 0.5))
def test_channels_that_change_together(history: list[dict[int, int]], hazard: float) -> None:
    state, slow = start(hazard=hazard, changes="together"), RunLengths(3, hazard)
    for t, heard in enumerate(history, start=1):
        hear(state, t, heard)
        slow.observe(list(heard.items()))
        if heard:
            assert told(state) == pytest.approx([slow.mean(k) for k in range(3)])


@given(rounds_of, st.floats(0.001, 0.5))
def test_channels_that_change_alone(history: list[dict[int, int]], hazard: float) -> None:
    state, slow = start(hazard=hazard), [RunLengths(1, hazard) for _ in range(3)]
    for t, heard in enumerate(history, start=1):
        hear(state, t, heard)
        for channel in range(3):
            slow[channel].observe([(0, heard[channel])] if channel in heard else [])
            if channel in heard:
                assert told(state)[channel] == pytest.approx(slow[channel].mean(0))


def test_outcomes_in_order_teach_the_same_whenever_they_come() -> None:
    once, late = start(hazard=0.05), start(hazard=0.05)
    for t in range(1, 20):
        hear(once, t, {1: int(t > 9)})
    for when in range(1, 20):
        assert update_late(late, 30, when, 0, 1, int(when > 9)) == -1
    assert told(late) == told(once)


def test_draws_are_from_the_mixture() -> None:
    """After a gap a channel may have changed: its draws are then uniform."""
    state, rng = start(hazard=0.1), np.random.default_rng(1)
    for t in range(1, 6):
        hear(state, t, {0: 1})
    chosen, draws = np.zeros(2, np.int64), np.empty((3000, 3))
    for row in draws:
        select(state, 11, None, rng, chosen)
        row[:] = state.values
    stays = 0.9**6

    def law(x: Any) -> Any:
        at_last = sum(
            w * x ** (1 + n) for w, n in zip(state.weight[0], state.tries[0], strict=True)
        )
        return stays * at_last + (1 - stays) * x

    assert kstest(draws[:, 0], law).pvalue > 5.7e-7  # five sigma
    assert kstest(draws[:, 2], "uniform").pvalue > 5.7e-7


def test_few_beginnings_keep_the_likely_ones() -> None:
    few, many = start(beginnings=8, hazard=0.01), start(beginnings=128, hazard=0.01)
    rng = np.random.default_rng(0)
    for t in range(1, 120):
        heard = {0: int(rng.random() < (0.9 if t < 60 else 0.1))}
        hear(few, t, heard)
        hear(many, t, heard)
    assert told(few)[0] == pytest.approx(told(many)[0], abs=0.05)
