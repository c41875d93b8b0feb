"""Indices of cucb, kl-ucb and thompson against their definitions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import kstest

from freshband.errors import ParameterError
from freshband.schedulers import cucb, kl_ucb, thompson
from freshband.schedulers.base import score, select
from freshband.schedulers.counts import keep
from freshband.schedulers.index import evaluate
from freshband.schedulers.kl_ucb import _kl_upper_bound
from tests.reference.glr import kl
from tests.reference.ordering import best_first
from tests.schedulers.stepping import Game

heard = st.lists(
    st.integers(0, 50).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))),
    min_size=2,
    max_size=8,
)


def fill(state: Any, history: list[tuple[int, int]]) -> Any:
    for channel, (pulls, wins) in enumerate(history):
        keep(state.counts, channel, float(pulls), float(wins))
    return state


def definition(kind: str, pulls: int, wins: int, elapsed: int) -> float:
    if pulls == 0:
        return math.inf
    mean = wins / pulls
    if kind == "cucb":
        return mean + math.sqrt(0.7 * math.log(elapsed) / pulls)
    budget = math.log(elapsed) / pulls
    if mean == 1 or budget == 0:
        return mean
    top = 1 - 1e-16
    if kl(mean, top) <= budget:
        return 1.0
    return float(brentq(lambda q: kl(mean, q) - budget, max(mean, 1e-300), top, xtol=1e-15))


@pytest.mark.parametrize("kind", ["cucb", "kl-ucb"])
@given(heard, st.integers(1, 10**6), st.integers(1, 8), st.integers(1, 10**6))
def test_the_largest_indices_are_played(
    kind: str, history: list[tuple[int, int]], elapsed: int, n_clients: int, t: int
) -> None:
    n_channels = len(history)
    n_clients = min(n_clients, n_channels)
    if kind == "cucb":
        policy: Any = cucb.Cucb(index_c=0.7, channel_key="index")
    else:
        policy = kl_ucb.KlUcb(channel_key="index")
    state = policy.start(n_clients, n_channels, None, None)
    fill(state, history)
    evaluate(state, elapsed, None)
    expected = [definition(kind, pulls, wins, elapsed) for pulls, wins in history]
    assert state.values.tolist() == pytest.approx(expected, rel=1e-7, abs=1e-9)
    select(state, t, None, None, chosen := np.zeros(n_clients, np.int64))
    assert chosen.tolist() == best_first(state.values, t, range(n_channels))[:n_clients]


@given(
    st.floats(0, 1) | st.sampled_from((0.0, 1e-12, 1e-6, 0.5, 1 - 1e-9, 1.0)),
    st.floats(0, 60) | st.sampled_from((0.0, 1e-12, 1e-6, 700.0)),
)
@settings(max_examples=500)
def test_kl_upper_bound_is_the_largest_within_budget(p: float, budget: float) -> None:
    q = _kl_upper_bound(p, budget)
    assert p - 1e-15 <= q <= 1
    if q - 1e-9 > p:
        assert kl(p, q - 1e-9) <= budget + 1e-14
    if q + 1e-9 < 1:
        assert kl(p, q + 1e-9) >= budget - 1e-14


def test_thompson_draws_from_the_posterior() -> None:
    state = fill(
        thompson.Thompson().start(1, 3, np.random.default_rng(0), None), [(0, 0), (9, 6), (40, 3)]
    )
    rng = np.random.default_rng(0)
    draws = np.empty((4000, 3))
    for row in draws:
        evaluate(state, 100, rng)
        row[:] = state.values
    for channel, (a, b) in enumerate([(1, 1), (7, 4), (4, 38)]):
        assert kstest(draws[:, channel], "beta", args=(a, b)).pvalue > 5.7e-7  # five sigma


@pytest.mark.parametrize("policy", ["cucb", "kl-ucb"])
def test_channels_never_heard_are_tried_first(policy: str) -> None:
    game = Game(policy, 2, 7)
    tried: set[int] = set()
    for _ in range(3):
        plan = game.plan()
        assert tried.isdisjoint(plan)
        tried.update(plan)
        game.observe([1, 1])
    game.plan()
    assert len(tried.union(game.desk.assignment.tolist())) == 7


@pytest.mark.parametrize("policy", ["cucb", "kl-ucb", "thompson", "glr-cucb"])
@pytest.mark.parametrize("key", ["mean", "index"])
def test_chosen_channels_are_ranked_by_the_key_asked_for(policy: str, key: str) -> None:
    game = Game(policy, 1, 3, channel_key=key)
    for t in range(30):
        game.play([t % 3 == 0, 1, t % 2])
    game.plan()
    state = game.scheduler.index if policy == "glr-cucb" else game.scheduler
    scores = np.zeros((1, 3))
    score(game.scheduler, game.t, scores)
    expected = state.counts.mean if key == "mean" else state.values
    assert scores[0].tolist() == expected.tolist()
    assert state.counts.mean.tolist() != state.values.tolist()


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [(cucb.Cucb, "index_c", 0), (cucb.Cucb, "channel_key", "ucb"), (cucb.Cucb, "mean_window", 1.5),
     (kl_ucb.KlUcb, "discount", 1), (thompson.Thompson, "mean_window", 0)],
)  # fmt: skip
def test_parameters_out_of_range_are_refused(kind: Any, name: str, value: Any) -> None:
    with pytest.raises(ParameterError, match=f"{name} must be"):
        kind(**{name: value})
