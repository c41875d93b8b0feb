"""Oracles choose the right sets; random chooses all of them alike."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshband._policy import parse_policy
from freshband.schedulers.base import means, reveal, score, select, update
from freshband.schedulers.random import RandomScheduler
from tests.channels.margins import assert_share
from tests.reference.ordering import best_first


def open_oracle(selection: str, n_clients: int, n_channels: int) -> Any:
    policy = parse_policy(f"oracle:{selection}")
    return policy.start(n_clients, n_channels, np.random.default_rng(0), None)[0]


air = st.integers(2, 8).flatmap(
    lambda n: st.tuples(
        st.lists(st.sampled_from((0.1, 0.3, 0.5, 0.9)), min_size=n, max_size=n),
        st.lists(st.integers(0, 1), min_size=n, max_size=n),
        st.lists(st.integers(0, 9), min_size=n, max_size=n),
        st.integers(1, n),
    )
)


@pytest.mark.parametrize("selection", ["mean", "csi", "fixed"])
@given(air, st.integers(1, 10**6))
def test_what_each_oracle_plays(selection: str, world: Any, t: int) -> None:
    true_means, states, hindsight, n_clients = world
    n_channels = len(true_means)
    oracle = open_oracle(selection, n_clients, n_channels)
    if selection == "fixed":
        oracle.values[:] = hindsight
    worth = {"mean": true_means, "csi": states, "fixed": hindsight}[selection]
    reveal(oracle, np.array(true_means), np.array(states, np.uint8))
    chosen = np.zeros(n_clients, np.int64)
    select(oracle, t, None, None, chosen)
    assert chosen.tolist() == best_first(worth, t, range(n_channels))[:n_clients]
    scores = np.zeros((1, n_channels))
    score(oracle, t, scores)
    assert scores[0].tolist() == worth
    told = np.zeros(n_channels)
    means(oracle, told)
    assert told.tolist() == true_means
    assert update(oracle, t, chosen, np.ones(n_clients, np.int8), np.zeros(n_clients)) == -1
    assert oracle.values.tolist() == worth  # outcomes teach it nothing


def test_csi_uses_every_good_channel_it_can() -> None:
    oracle = open_oracle("csi", 3, 6)
    rng = np.random.default_rng(1)
    chosen = np.zeros(3, np.int64)
    for t in range(1, 300):
        states = rng.integers(0, 2, 6).astype(np.uint8)
        reveal(oracle, np.full(6, np.nan), states)  # as on a trace, which has no means
        select(oracle, t, None, None, chosen)
        assert states[chosen].sum() == min(3, states.sum())


def test_random_plays_every_subset_alike() -> None:
    rng = np.random.default_rng(2)
    state = RandomScheduler().start(2, 5, rng, None)
    chosen = np.zeros(2, np.int64)
    seen: Counter[tuple[int, ...]] = Counter()
    for t in range(1, 10_001):
        select(state, t, None, rng, chosen)
        seen[tuple(sorted(chosen.tolist()))] += 1
    assert set(seen) == set(combinations(range(5), 2))
    for count in seen.values():
        assert_share(count, 10_000, 1 / 10)
