"""The assignment problem with any numbers of clients and channels, and at most so many pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from freshband._jit import entry_point
from freshband.matching._assignment import assign
from tests.reference import matching as slow


@entry_point
def assign_compiled(
    urgency: Any, scores: Any, clients: Any, channels: Any, most: int, assignment: Any
) -> None:
    assign(urgency, scores, clients, channels, most, assignment)


class Problem:
    """Random urgencies and links, some equal, of which some clients and channels take part."""

    def __init__(self, seed: int, largest: int) -> None:
        rng = np.random.default_rng(seed)
        n_clients, n_channels = rng.integers(1, largest + 1, 2)
        ages = rng.integers(1, 9, n_clients)
        self.urgency = ages * (ages + 1.0)
        scores = rng.uniform(-0.2, 1.0, (n_clients, n_channels))
        self.scores = scores.round(1) if seed % 2 else scores
        self.clients = rng.permutation(n_clients)[: rng.integers(1, n_clients + 1)]
        self.channels = rng.permutation(n_channels)[: rng.integers(1, n_channels + 1)]
        self.n_pairs = min(len(self.clients), len(self.channels))

    def solve(self, most: int, solver: Any = assign) -> NDArray[np.int64]:
        """Assign, and check that the plan keeps to who and what takes part."""
        plan = np.full(len(self.urgency), -1)
        solver(self.urgency, self.scores, self.clients, self.channels, most, plan)
        used = plan[plan >= 0]
        assert len(used) == min(self.n_pairs, most) == len(set(used))
        assert set(used) <= set(self.channels)
        assert set(np.flatnonzero(plan >= 0)) <= set(self.clients)
        return plan

    def weight(self, plan: NDArray[np.int64]) -> float:
        sent = np.flatnonzero(plan >= 0)
        return float((self.urgency[sent] * self.scores[sent, plan[sent]]).sum())


@given(st.integers(0, 10**6))
def test_it_is_worth_what_scipy_finds(seed: int) -> None:
    problem = Problem(seed, largest=12)
    values = (problem.urgency[:, None] * problem.scores)[problem.clients][:, problem.channels]
    best = values[linear_sum_assignment(values, maximize=True)].sum()
    plan = problem.solve(most=100)
    assert problem.weight(plan) == pytest.approx(best, abs=1e-9)


@given(st.integers(0, 10**6), st.integers(0, 4))
def test_no_other_choice_of_so_many_pairs_weighs_more(seed: int, most: int) -> None:
    problem = Problem(seed, largest=4)
    best = slow.most_weight_over_links(
        problem.urgency, problem.scores, problem.clients, problem.channels, most
    )
    assert problem.weight(problem.solve(most)) == pytest.approx(best, abs=1e-9)


def test_compiled_and_plain_agree() -> None:
    for seed in range(300):
        problem = Problem(seed, largest=9)
        for most in {problem.n_pairs, 1 + seed % problem.n_pairs}:
            plan = problem.solve(most)
            np.testing.assert_array_equal(problem.solve(most, assign_compiled), plan)


@pytest.mark.parametrize(("n_channels", "most"), [(2, 9), (2, 2), (5, 2), (7, 2), (3, 2)])
def test_of_equal_clients_the_first_in_order_send(n_channels: int, most: int) -> None:
    order, plan = np.array([3, 1, 4, 0, 2]), np.full(5, -1)
    assign(np.ones(5), np.ones((5, n_channels)), order, np.arange(n_channels), most, plan)
    assert sorted(np.flatnonzero(plan >= 0)) == [1, 3]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_scores_that_are_no_numbers_leave_the_number_of_pairs(most: int) -> None:
    scores = np.array([[np.inf, np.nan], [-np.inf, 0.5], [np.nan, np.nan]])
    plan = np.full(3, -1)
    assign(np.array([1e9, 1.0, 2.0]), scores, np.arange(3), np.arange(2), most, plan)
    assert plan.tolist() == [[0, -1, -1], [0, 1, -1], [0, 1, -1]][most - 1]


@pytest.mark.parametrize("urgency", [np.inf, np.nan, -np.inf])
@pytest.mark.parametrize("most", [1, 2])
def test_urgencies_that_are_no_numbers_end_all_the_same(urgency: float, most: int) -> None:
    scores, plan = np.array([[0.5, 0.1], [0.9, 0.4], [0.2, 0.7]]), np.full(3, -1)
    assign(np.array([urgency, 1.0, 2.0]), scores, np.arange(3), np.arange(2), most, plan)
    assert len(set(plan[plan >= 0])) == most
    assert (plan[0] == 0) == (urgency == np.inf)


@pytest.mark.parametrize(("clients", "channels", "most"), [(0, 2, 2), (2, 0, 2), (2, 2, 0)])
def test_nobody_sends_where_nothing_can_be_sent(clients: int, channels: int, most: int) -> None:
    plan = np.full(2, -1)
    assign(np.ones(2), np.ones((2, 2)), np.arange(clients), np.arange(channels), most, plan)
    assert plan.tolist() == [-1, -1]
