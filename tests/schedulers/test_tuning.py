"""What the published tunings are, and that names are what they stand for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from freshband._policy import parse_policy
from freshband.errors import ParameterError
from freshband.schedulers.counts import rounds_counted, start_counts
from freshband.schedulers.cusum_ucb import CusumUcb
from freshband.schedulers.d_ucb import DUcb
from freshband.schedulers.glr_klucb import GlrKlucb
from freshband.schedulers.m_ucb import MUcb
from freshband.schedulers.sw_thompson import SwThompson
from tests.schedulers.stepping import Game

T, N = 5000, 3


def start(kind: Any, horizon: int | None = T) -> Any:
    return kind.start(1, N, np.random.default_rng(0), horizon)


def test_how_many_rounds_count() -> None:
    for window, discount in [(None, None), (7, None), (None, 0.9), (7, 0.9)]:
        counts = start_counts(2, N, window, discount)
        for elapsed in (1, 2, 7, 8, 300):
            ages = range(min(elapsed, window or elapsed))
            expected = sum((discount or 1.0) ** age for age in ages)
            assert rounds_counted(counts, elapsed) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "whole", "options"),
    [
        ("sw-ucb", "cucb", {"mean_window": 200, "index_c": 0.5}),
        ("d-ucb", "cucb", {"discount": 0.99, "index_c": 0.5}),
        ("sw-thompson", "thompson", {"mean_window": 200}),
        ("d-thompson", "thompson", {"discount": 0.99}),
    ],
)
def test_who_forgets_is_an_option_under_its_own_name(
    name: str, whole: str, options: dict[str, Any]
) -> None:
    one, other = Game(name, 2, 5), Game(whole, 2, 5, **options)
    rng = np.random.default_rng(1)
    for _ in range(250):
        states = rng.random(5) < [0.9, 0.7, 0.5, 0.3, 0.1]
        one.play(states)
        other.play(states)
        assert one.desk.assignment.tolist() == other.desk.assignment.tolist()


def test_windows_and_discounts() -> None:
    window = start(SwThompson(window="auto", n_breakpoints=4)).counts.ring_outcome
    assert len(window) == math.floor(2 * math.sqrt(T * math.log(T) / 4))
    discount = start(DUcb(discount="auto", n_breakpoints=4)).counts.discount[0]
    assert discount == pytest.approx(1 - math.sqrt(4 / T) / 4)


def test_detectors() -> None:
    state = start(MUcb(threshold="published", alpha="published", n_segments=5, window=150))
    limit = math.sqrt(150 * math.log(2 * N * T**2) / 2)
    assert state.detector.limit[0] == pytest.approx(limit)
    share = math.sqrt(4 * N * (2 * limit + 3 * math.sqrt(150)) / (2 * T))
    assert state.alpha[0] == pytest.approx(N / math.ceil(N / share))  # one in so many rounds
    state = start(CusumUcb(threshold="published", alpha="published", n_segments=5))
    assert state.detector.rule[0]["threshold"] == pytest.approx(math.log(T / 4))
    assert state.alpha[0] == pytest.approx(math.sqrt(4 * math.log(T / 4) / T))
    for restart, changes in (("local", 4 * N), ("global", 4)):
        state = start(GlrKlucb(delta="published", alpha="published", n_segments=5, restart=restart))
        assert state.detector.rule[0]["delta"] == pytest.approx(1 / math.sqrt(changes * T))
        share = 0.05 * math.sqrt(changes * math.log(T) / T)
        assert state.alpha[0] == pytest.approx(share)
        assert type(state.index).__name__ == "_KlUcbState"


@pytest.mark.parametrize(
    ("policy", "options"),
    [
        ("m-ucb:published", {}),
        ("cusum-ucb:published", {}),
        ("glr-klucb:published", {}),
        ("glr-klucb", {"alpha": "published"}),
        ("sw-ucb", {"window": "auto"}),
        ("d-thompson", {"discount": "auto"}),
        ("exp3-m", {"gamma": "auto"}),
        ("exp3-s", {"share": "auto"}),
    ],
)
def test_tunings_that_need_the_horizon_ask_for_it(policy: str, options: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=r"needs the number of rounds in advance: .*horizon=T"):
        start(parse_policy(policy, options), None)


@pytest.mark.parametrize("policy", ["m-ucb", "cusum-ucb", "glr-klucb", "r-bocpd"])
def test_any_index_goes_with_any_detector(policy: str) -> None:
    for index in ("thompson", "sw-ucb", "q-ucb"):
        game = Game(policy, 2, 4, index=index)
        for t in range(40):
            game.play([1, t % 2, 0, 1])
    with pytest.raises(ParameterError, match="index must be the name of an index policy"):
        parse_policy(policy, {"index": "glr-cucb"})
