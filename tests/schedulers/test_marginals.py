"""Exp3.M, Exp3.S and Tsallis-INF: their probabilities, dependent rounding, and what they learn."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshband.schedulers._marginals import close, credit, dep_round, spread
from freshband.schedulers.base import select, select_available, update, update_late
from freshband.schedulers.exp3_m import Exp3M
from freshband.schedulers.exp3_s import Exp3S
from freshband.schedulers.round_robin import RoundRobin
from freshband.schedulers.tsallis_inf import TsallisInf
from tests.reference.marginals import exp3_m, tsallis

NOBODY = np.zeros(3, np.int8)


def start(kind: Any, n_clients: int, n_channels: int, horizon: int | None = None) -> Any:
    return kind.start(n_clients, n_channels, np.random.default_rng(0), horizon)


def marginals_of(state: Any, t: int, offered: list[int], size: int) -> Any:
    found = np.zeros(len(offered))
    spread(state.scheme, t, np.array(offered, np.int8), size, found)
    return found


sizes = st.integers(2, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n - 1)))


@given(sizes, st.floats(0.01, 0.9), st.data())
def test_weights_are_cut_as_exp3_m_says(
    shape: tuple[int, int], gamma: float, data: st.DataObject
) -> None:
    n, size = shape
    logs = data.draw(st.lists(st.floats(-8, 8), min_size=n, max_size=n))
    state = start(Exp3M(gamma=gamma), size, n)
    state.scheme.log_weight[:] = logs
    found = marginals_of(state, 1, [1] * n, size)
    expected = exp3_m([math.exp(x) for x in logs], size, gamma)
    assert found.tolist() == pytest.approx(expected, rel=1e-7)
    assert found.sum() == pytest.approx(size)
    assert found.max() <= 1


@given(sizes, st.integers(1, 10**5), st.data())
@settings(max_examples=15)
def test_tsallis_marginals_are_the_minimum(
    shape: tuple[int, int], t: int, data: st.DataObject
) -> None:
    n, size = shape
    losses = data.draw(st.lists(st.floats(0, 2000), min_size=n, max_size=n))
    state = start(TsallisInf(), size, n)
    state.scheme.loss[:] = losses
    found = marginals_of(state, t, [1] * n, size)
    assert found.tolist() == pytest.approx(tsallis(losses, size, 2 / math.sqrt(t)), abs=1e-7)


@pytest.mark.parametrize("kind", [Exp3M(), TsallisInf()])
def test_only_offered_channels_have_a_chance(kind: Any) -> None:
    state = start(kind, 2, 5)
    for channel, chance in ((0, 0.3), (1, 0.5), (4, 0.1)):
        credit(state.scheme, 1, channel, channel % 2, chance)
    found = marginals_of(state, 7, [1, 0, 1, 1, 0], 2)
    assert found[[1, 4]].tolist() == [0, 0]
    assert found.sum() == pytest.approx(2)
    assert (found[[0, 2, 3]] > 0).all()


def test_dependent_rounding_keeps_every_marginal_and_the_size() -> None:
    """T10: the sum is exact in every draw, each mean within five sigma."""
    marginals = np.array([0.9, 0.0, 0.35, 1.0, 0.5, 0.25, 1e-13, 0.999])
    size, rng, draws = 4, np.random.default_rng(1), 20_000
    seen, rounded = np.zeros(8), np.zeros(8)
    for _ in range(draws):
        dep_round(marginals, rng, rounded)
        ones = rounded > 0.5
        assert ones.sum() == size
        seen += ones
    margin = 5 * np.sqrt(marginals * (1 - marginals) / draws) + 1e-12
    assert (np.abs(seen / draws - marginals) <= margin).all()


@pytest.mark.parametrize("kind", [Exp3M(share=0.0), Exp3S(share=0.0), TsallisInf()])
def test_an_outcome_counts_as_much_as_its_draw_was_unlikely(kind: Any) -> None:
    state, chosen = start(kind, 3, 6), np.zeros(3, np.int64)
    select(state, 5, np.ones(3), np.random.default_rng(0), chosen)
    chance = state.chance[5].copy()
    outcome = np.array([0, 1, -1], np.int8)
    update(state, 5, chosen, outcome, NOBODY)
    expected = np.zeros(6)
    if isinstance(kind, TsallisInf):
        expected[chosen[0]] = 1 / chance[chosen[0]]
        found = state.scheme.loss
    else:
        gamma = min(1, state.scheme.rate[0]["gamma"] / math.sqrt(5))
        expected[chosen[1]] = gamma * 3 / 6 / chance[chosen[1]]
        found = state.scheme.log_weight
    assert found.tolist() == pytest.approx(expected.tolist())
    news = 0 if isinstance(kind, TsallisInf) else 1
    update_late(state, 9, 5, 2, chosen[2], news)
    assert found[chosen[2]] > 0
    before = found.copy()
    update_late(state, 5 + 63, 5, 2, chosen[2], news)
    assert found.tolist() == before.tolist()  # its probability is forgotten


def test_what_was_overridden_teaches_the_means_only() -> None:
    state, chosen = start(Exp3M(share=0.0), 3, 6), np.zeros(3, np.int64)
    select(state, 1, np.ones(3), np.random.default_rng(0), chosen)
    update(state, 1, chosen, np.ones(3, np.int8), np.ones(3, np.int8))
    assert not state.scheme.log_weight.any()
    assert (state.counts.mean[chosen] == 1).all()


def test_sharing_lifts_all_weights_alike() -> None:
    state = start(Exp3M(share=0.5), 1, 4)
    state.scheme.log_weight[:] = np.log([1.0, 2.0, 4.0, 1e-9])
    close(state.scheme, 1)
    gift = math.e * 0.5 / 4 * 7.0
    weights = np.exp(state.scheme.log_weight)
    expected = np.array([1.0, 2.0, 4.0, 1e-9]) + gift
    np.testing.assert_allclose(weights / weights.sum(), expected / expected.sum(), rtol=1e-8)


def test_the_tuned_rates() -> None:
    rate = start(Exp3M(gamma="auto", share="auto"), 2, 5, 10_000).scheme.rate[0]
    assert rate["gamma"] == pytest.approx(
        math.sqrt(5 * math.log(2.5) / ((math.e - 1) * 2 * 10_000))
    )
    assert rate["share"] == 1e-4
    rate = start(Exp3S(gamma="auto", n_segments=5), 1, 3, 5000).scheme.rate[0]
    hardness = 5 * math.log(3 * 5000) + math.e
    assert rate["gamma"] == pytest.approx(math.sqrt(3 * hardness / ((math.e - 1) * 5000)))


def test_round_robin_passes_over_what_is_missing() -> None:
    state, chosen = start(RoundRobin(), 2, 5), np.zeros(2, np.int64)
    available = np.array([0, 1, 1, 0, 1], np.int8)
    seen = []
    for t in range(1, 4):
        assert select_available(state, t, None, None, available, None, chosen)
        seen.append(chosen.tolist())
    assert seen == [[1, 2], [4, 1], [2, 4]]
