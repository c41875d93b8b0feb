"""The window test, CUSUM and R-BOCPD against their definitions, outcome by outcome."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshband.detectors.base import forget, forget_all, push, since_change
from freshband.detectors.bocpd import RestartedBocpd
from freshband.detectors.cusum import Cusum
from freshband.detectors.two_halves import TwoHalves
from tests.reference.detectors import best_beginning, cusum, halves_differ

streams = st.lists(st.integers(0, 1), max_size=60)


@given(streams, st.integers(1, 8), st.floats(0.5, 6.0))
def test_the_window_test_compares_the_halves(stream: list[int], half: int, limit: float) -> None:
    state = TwoHalves(window=2 * half, threshold=limit).start(2)
    for n, x in enumerate(stream, start=1):
        assert push(state, 1, x) == halves_differ(stream[:n], 2 * half, limit)
        if n >= 2 * half:
            assert since_change(state, 1) == (half, sum(stream[n - half : n]))
    assert not state.book[0]["count"]


@given(streams, st.integers(1, 10), st.floats(0.01, 0.4), st.floats(0.3, 5.0))
def test_cusum_walks(stream: list[int], warm_up: int, drift: float, limit: float) -> None:
    state = Cusum(warm_up=warm_up, drift=drift, threshold=limit).start(2)
    for n, x in enumerate(stream, start=1):
        alarm, since = cusum(stream[:n], warm_up, drift, limit)
        assert push(state, 1, x) == alarm
        assert since_change(state, 1) == since
    assert not state.book[0]["count"]


@given(streams, st.floats(0.001, 1.0))
def test_bocpd_weighs_every_beginning(stream: list[int], delta: float) -> None:
    state = RestartedBocpd(delta=delta).start(2)
    for n, x in enumerate(stream, start=1):
        odds, before = best_beginning(stream[:n])
        excess = odds + math.log(delta / n)
        alarm = push(state, 1, x)
        assert alarm == (excess > 0) or abs(excess) < 1e-9
        if n > 1:
            lead = state.forecasters[1, : n - 1]["lead"]
            assert lead.max() == pytest.approx(odds, abs=1e-9)
            assert lead[before - 1] == pytest.approx(odds, abs=1e-9)


def test_bocpd_drops_the_least_likely_beginning() -> None:
    rng = np.random.default_rng(0)
    few = RestartedBocpd(delta=0.01, forecasters=8).start(1)
    stream = [*(rng.random(300) < 0.8), *(rng.random(300) < 0.2)]
    alarms = [n for n, x in enumerate(stream, start=1) if push(few, 0, int(x))]
    assert alarms
    assert 300 < alarms[0] < 340  # eight forecasters find the change that all would find
    tries, wins = since_change(few, 0)
    assert tries <= 600
    assert wins <= tries


@pytest.mark.parametrize(
    "kind", [TwoHalves(window=10, threshold=3), Cusum(warm_up=5), RestartedBocpd()]
)
def test_forgetting_begins_anew(kind: Any) -> None:
    stream = [1] * 30 + [0] * 30
    fresh = [push(state, 0, x) for state in [kind.start(1)] for x in stream]
    used = kind.start(2)
    for x in stream:
        push(used, 0, x)
        push(used, 1, 1 - x)
    forget(used, 0)
    assert used.book[1]["count"] == 60
    assert [push(used, 0, x) for x in stream] == fresh
    forget_all(used)
    assert [push(used, 1, x) for x in stream] == fresh
    assert any(fresh)
