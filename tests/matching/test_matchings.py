"""Every matching against its definition."""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshband.matching.base import match, registry
from tests.channels.margins import assert_share
from tests.reference import matching as slow


@st.composite
def tables(draw: Any, most: int = 20) -> dict[str, Any]:
    n_channels = draw(st.integers(1, most))
    n_clients = draw(st.integers(1, n_channels))
    scores = st.sampled_from((0.0, 0.5, 1.0, np.inf)) | st.floats(0, 1)
    return {
        "t": draw(st.integers(1, 10**9)),
        "chosen": draw(st.permutations(range(n_channels)))[:n_clients],
        "scores": draw(st.lists(scores, min_size=n_channels, max_size=n_channels)),
        "ages": draw(st.lists(st.integers(1, 6), min_size=n_clients, max_size=n_clients)),
    }


def matched(name: str, table: dict[str, Any], rng: Any = None) -> list[int]:
    n_clients = len(table["chosen"])
    assignment = np.full(n_clients, -1)
    match(
        registry[name]().start(n_clients),
        table["t"],
        np.array(table["chosen"]),
        np.array([table["scores"]]),
        np.array(table["ages"]),
        np.zeros(n_clients),
        rng,
        assignment,
    )
    plan: list[int] = assignment.tolist()
    return plan


@pytest.mark.parametrize("name", registry.names())
@given(tables())
@settings(max_examples=40)
def test_everybody_gets_a_channel_of_the_chosen(name: str, table: dict[str, Any]) -> None:
    plan = matched(name, table, np.random.default_rng(0))
    assert sorted(plan) == sorted(table["chosen"])


@given(tables())
def test_rotate(table: dict[str, Any]) -> None:
    assert matched("rotate", table) == slow.rotate(table["t"], table["chosen"], table["scores"])


@given(tables())
def test_fixed(table: dict[str, Any]) -> None:
    assert matched("fixed", table) == slow.fixed(table["t"], table["chosen"], table["scores"])


@given(tables())
def test_age(table: dict[str, Any]) -> None:
    assert matched("age", table) == slow.age(
        table["t"], table["chosen"], table["scores"], table["ages"]
    )


@given(tables(most=5))
def test_age_solves_the_assignment_program(table: dict[str, Any]) -> None:
    """max sum a_i mean_k(i), by trying all permutations."""
    table["scores"] = [min(score, 1.0) for score in table["scores"]]
    plan = matched("age", table)
    weight = sum(a * table["scores"][k] for a, k in zip(table["ages"], plan, strict=True))
    best = slow.most_weight(table["ages"], table["scores"], table["chosen"])
    assert weight == pytest.approx(best, rel=1e-12)


def test_rotation_is_the_printed_one() -> None:
    """Client j in round t takes rank ((j + t) mod M) + 1, all counted from 1 (erratum E6)."""
    scores = [0.1, 0.9, 0.5, 0.7]  # ranks: channel 1, 3, 2, 0
    table = {"chosen": [0, 2, 1], "scores": scores, "ages": [1, 1, 1]}  # ranks 1, 2, 0
    assert matched("rotate", {"t": 1, **table}) == [0, 1, 2]  # ranks 3, 1, 2
    assert matched("rotate", {"t": 2, **table}) == [1, 2, 0]
    assert matched("rotate", {"t": 3, **table}) == [2, 0, 1]
    assert matched("rotate", {"t": 4, **table}) == [0, 1, 2]


def test_rotation_gives_every_client_every_rank_alike() -> None:
    table = {"chosen": [3, 1, 0, 2], "scores": [0.4, 0.3, 0.2, 0.1], "ages": [9, 1, 1, 1]}
    plans = np.array([matched("rotate", {"t": t, **table}) for t in range(1, 41)])
    for client in range(4):
        assert Counter(plans[:, client].tolist()) == dict.fromkeys(range(4), 10)


def test_random_deals_every_permutation_alike() -> None:
    rng = np.random.default_rng(1)
    table = {"t": 1, "chosen": [5, 2, 7], "scores": [0.1 * k for k in range(8)], "ages": [1, 5, 9]}
    deals = 9000
    seen = Counter(tuple(matched("random", table, rng)) for _ in range(deals))
    assert set(seen) == set(permutations((2, 5, 7)))
    for count in seen.values():
        assert_share(count, deals, 1 / 6)


def test_equal_ages_and_scores_are_fair_over_time() -> None:
    table = {"chosen": [0, 1, 2, 3], "scores": [0.9, 0.1, 0.1, 0.1], "ages": [2, 2, 2, 2]}
    rounds = 4000
    best = Counter(matched("age", {"t": t, **table}).index(0) for t in range(1, rounds + 1))
    for client in range(4):
        assert_share(best[client], rounds, 0.25)


def test_a_tie_of_clients_and_one_of_channels_fall_independently() -> None:
    table = {"chosen": [0, 1], "scores": [0.5, 0.5], "ages": [1, 1]}
    rounds = 2000
    straight = sum(matched("age", {"t": t, **table}) == [0, 1] for t in range(1, rounds + 1))
    assert_share(straight, rounds, 0.5)
