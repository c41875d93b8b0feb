"""Priority matching: equations (36) to (40) against an obvious version."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import freshband
from freshband._policy import parse_policy
from freshband.errors import ParameterError, UnknownNameError
from freshband.matching.base import match
from freshband.matching.priority import Priority
from tests.reference.ordering import best_first, oldest_first


class SlowPriority:
    """The definition, remembering every round."""

    def __init__(self, beta: float, scale: str, window: int | None) -> None:
        self.beta, self.scale, self.window = beta, scale, window
        self.spreads: list[float] = []
        self.oldest: list[float] = []
        self.worths: list[float] = []

    def peak(self, values: list[float]) -> float:
        return max(values if self.window is None else values[-self.window :])

    def priorities(self, ages: list[int], worth: list[float]) -> list[float]:
        m = len(ages)
        mean = sum(ages) / m
        self.spreads.append(sum((a - mean) ** 2 for a in ages))
        self.oldest.append(max(ages))
        self.worths.append(max(worth))
        top = self.peak(self.spreads)
        beta = self.beta * (self.spreads[-1] / top if top > 0 else 0.0)
        if self.scale == "sum":
            scaled = [c / sum(worth) if sum(worth) > 0 else 1 / m for c in worth]
        elif self.scale == "none":
            scaled = list(worth)
        elif self.scale == "running_max":
            best = self.peak(self.worths)
            scaled = [c / best if best > 0 else 0.0 for c in worth]
        else:
            low, high = min(worth), max(worth)
            scaled = [(c - low) / (high - low) if high > low else 0.0 for c in worth]
        return [
            (1 - beta) * c + beta * a / self.peak(self.oldest)
            for c, a in zip(scaled, ages, strict=True)
        ]


games = st.integers(1, 6).flatmap(
    lambda m: st.lists(
        st.tuples(
            st.lists(st.integers(1, 9), min_size=m, max_size=m),
            st.lists(st.floats(0, 2), min_size=m, max_size=m),
        ),
        min_size=1,
        max_size=12,
    )
)


@given(
    games,
    st.floats(0, 1),
    st.sampled_from(("sum", "none", "running_max", "minmax")),
    st.none() | st.integers(1, 5),
)
@settings(max_examples=150)
def test_round_for_round_the_definition(
    game: Any, beta: float, scale: Any, window: int | None
) -> None:
    m = len(game[0][0])
    rule = Priority(beta=beta, contribution_scale=scale, norm_window=window)
    state = rule.start(m)
    slow = SlowPriority(beta, scale, window)
    scores = np.linspace(0.2, 0.9, m)[None]
    for t, (ages, worth) in enumerate(game, start=1):
        assignment = np.full(m, -1)
        match(state, t, np.arange(m), scores, np.array(ages), np.array(worth), None, assignment)
        assert state.priority == pytest.approx(slow.priorities(ages, worth), abs=1e-12)
        first = oldest_first(state.priority, t, range(m))  # highest priority first, ties by lot
        best = best_first(scores[0], t, range(m))
        assert [int(assignment[j]) for j in first] == best


def test_even_ages_leave_it_to_contribution_and_spread_ages_to_age() -> None:
    state = Priority().start(2)
    scores = np.array([[0.9, 0.1]])
    plan = np.zeros(2, np.int64)
    chosen = np.array([0, 1])
    match(state, 1, chosen, scores, np.array([1, 9]), np.array([1.0, 0.0]), None, plan)
    assert plan.tolist() == [1, 0]  # as spread as ever: the old one first
    match(state, 2, chosen, scores, np.array([4, 4]), np.array([1.0, 0.0]), None, plan)
    assert plan.tolist() == [0, 1]  # even: the one that contributes first


def test_options_reach_the_matching() -> None:
    policy = parse_policy("glr-cucb+priority", {"beta": 0.5, "delta": 0.01})
    assert isinstance(policy.matching, Priority)
    assert policy.matching.beta == 0.5
    assert policy.options == {"beta": 0.5, "delta": 0.01}
    with pytest.raises(ParameterError, match="beta"):
        parse_policy("glr-cucb+age", {"beta": 0.5})
    with pytest.raises(ParameterError, match=r"beta must be a number in \[0, 1\]"):
        parse_policy("glr-cucb+priority", {"beta": 2})


def test_the_printed_matching_is_a_preset() -> None:
    printed = parse_policy("glr-cucb:paper+priority:paper").matching
    assert printed == Priority(beta=1.0, contribution_scale="none", norm_window=None)
    assert parse_policy("glr-cucb:paper+priority").matching == Priority()
    assert parse_policy("cucb+priority:paper", {"beta": 0.5}).matching == Priority(
        beta=0.5, contribution_scale="none", norm_window=None
    )
    with pytest.raises(UnknownNameError, match="age has no preset 'paper'"):
        parse_policy("cucb+age:paper")


def test_as_printed_a_bad_period_weakens_ages_for_ever() -> None:
    """E8: once ages were spread, the growing maximum leaves them little weight."""
    plans = {}
    for name, rule in (("printed", Priority(**Priority.presets["paper"])), ("ours", Priority())):
        state, plan = rule.start(2), np.zeros(2, np.int64)
        for t, ages in enumerate(([1, 30], [3, 1]), start=1):
            worth = np.array([0.2, 0.9])
            match(state, t, np.array([0, 1]), np.array([[0.9, 0.1]]), np.array(ages), worth, None,
                  plan)  # fmt: skip
        plans[name] = plan.tolist()
    assert plans == {"printed": [1, 0], "ours": [0, 1]}


def test_contributions_are_needed_there_and_only_there() -> None:
    coordinator = freshband.Coordinator("cucb+priority", 2, 3)
    with pytest.raises(ParameterError, match="contributions"):
        coordinator.plan()
    for bad in ([1.0], [1.0, float("nan")], [1.0, -1.0], "ab", [[1.0, 2.0]]):
        with pytest.raises(ParameterError, match="contributions must be 2"):
            coordinator.plan(contributions=bad)
    assert coordinator.round == 0
    assert coordinator.pending is None
    coordinator.plan(contributions=[0.3, 0.7])
    with pytest.raises(ParameterError, match="does not use them"):
        freshband.Coordinator("cucb", 2, 3).plan(contributions=[0.3, 0.7])


def test_a_simulation_has_no_contributions() -> None:
    with pytest.raises(ParameterError, match="only training"):
        freshband.simulate("stationary", "cucb+priority", rounds=10, runs=1)
