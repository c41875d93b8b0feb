"""Both AoI-aware rules against their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshband.schedulers import cucb
from freshband.schedulers._aoi_aware import wrap
from freshband.schedulers.base import means, override, reveal, score, select, update
from freshband.schedulers.counts import keep
from tests.reference.aoi_aware import per_client, sum_rule
from tests.schedulers.stepping import Game

MEANS = st.sampled_from((0.0, 0.1, 0.25, 0.5, 0.6, 1.0)) | st.floats(0.001, 1)


@st.composite
def situations(draw: Any) -> dict[str, Any]:
    n_channels = draw(st.integers(1, 8))
    n_clients = draw(st.integers(1, n_channels))
    return {
        "t": draw(st.integers(1, 10**6)),
        "means": draw(st.lists(MEANS, min_size=n_channels, max_size=n_channels)),
        "scores": draw(
            st.lists(st.floats(0, 2) | st.just(0.5), min_size=n_channels, max_size=n_channels)
        ),
        "ages": draw(st.lists(st.integers(1, 12), min_size=n_clients, max_size=n_clients)),
        "assignment": draw(st.permutations(range(n_channels)))[:n_clients],
    }


def learner(true_means: list[float], n_clients: int) -> Any:
    """A scheduler that has these historical means."""
    state = cucb.Cucb().start(n_clients, len(true_means), np.random.default_rng(0), None)
    for channel, mean in enumerate(true_means):
        keep(state.counts, channel, 10.0, 10.0 * mean)
        state.counts.mean[channel] = mean
    return state


@given(situations())
@settings(max_examples=400)
def test_per_client_rule(now: dict[str, Any]) -> None:
    ages, true_means = now["ages"], now["means"]
    state = wrap(learner(true_means, len(ages)), "per_client", len(ages), len(true_means))
    assignment = np.array(now["assignment"])
    overridden = np.zeros(len(ages), np.int8)
    scores = np.array([now["scores"]])
    override(state, now["t"], np.array(ages), scores, assignment, overridden)
    expected, jumped = per_client(
        now["t"], ages, true_means, now["scores"], np.array(now["assignment"])
    )
    assert assignment.tolist() == expected
    assert overridden.tolist() == jumped
    assert len(set(expected)) == len(ages)
    if max(true_means) == 0:
        assert expected == list(now["assignment"])  # h is infinite


@given(situations())
@settings(max_examples=200)
def test_per_client_promises(now: dict[str, Any]) -> None:
    """The same in words, without the reference."""
    ages, true_means, before = now["ages"], now["means"], now["assignment"]
    state = wrap(learner(true_means, len(ages)), "per_client", len(ages), len(true_means))
    after = np.array(before)
    overridden = np.zeros(len(ages), np.int8)
    override(state, now["t"], np.array(ages), np.array([now["scores"]]), after, overridden)
    late = [j for j in range(len(ages)) if ages[j] * max(true_means) > 1 + 1e-12]
    assert {j for j in range(len(ages)) if overridden[j]} >= set(late)
    best = sorted(true_means, reverse=True)[: int(overridden.sum())]
    got = sorted((true_means[after[j]] for j in range(len(ages)) if overridden[j]), reverse=True)
    assert got == best
    for i in range(len(ages)):
        for j in range(len(ages)):
            if overridden[i] and overridden[j] and ages[i] > ages[j]:
                assert true_means[after[i]] >= true_means[after[j]]
            if overridden[i] and not overridden[j]:
                assert ages[i] > ages[j]
        if not overridden[i] and before[i] not in [after[j] for j in np.flatnonzero(overridden)]:
            assert after[i] == before[i]


@given(st.lists(MEANS, min_size=1, max_size=6), st.integers(1, 40), st.data())
def test_one_client_follows_the_rule_of_the_aoi_bandits(
    true_means: list[float], age: int, data: Any
) -> None:
    """Bhandari, Fatale et al.: greedy when the age exceeds 1 / max mean, else as scheduled."""
    scheduled = data.draw(st.integers(0, len(true_means) - 1))
    state = wrap(learner(true_means, 1), "per_client", 1, len(true_means))
    assignment = np.array([scheduled])
    override(
        state, 3, np.array([age]), np.zeros((1, len(true_means))), assignment, np.zeros(1, np.int8)
    )
    best = max(true_means)
    if best > 0 and age > 1 / best:
        assert true_means[assignment[0]] == best
    else:
        assert assignment[0] == scheduled


@given(situations())
@settings(max_examples=300)
def test_sum_rule(now: dict[str, Any]) -> None:
    t, ages, true_means = now["t"], now["ages"], now["means"]
    n_clients, n_channels = len(ages), len(true_means)
    inner = learner(true_means, n_clients)
    state = wrap(inner, "sum", n_clients, n_channels)
    chosen = np.zeros(n_clients, np.int64)
    select(state, t, np.array(ages), None, chosen)
    scores = np.zeros((1, n_channels))
    score(state, t, scores)
    assignment = chosen.copy()
    overridden = np.zeros(n_clients, np.int8)
    override(state, t, np.array(ages), scores, assignment, overridden)
    assert assignment.tolist() == chosen.tolist()  # it chooses channels, not who gets them
    expected = sum_rule(t, ages, true_means)
    if expected is not None:
        assert chosen.tolist() == expected
        assert scores[0].tolist() == true_means
        assert overridden.all()
    else:
        plain = np.zeros(n_clients, np.int64)
        select(learner(true_means, n_clients), t, np.array(ages), None, plain)
        assert chosen.tolist() == plain.tolist()
        assert not overridden.any()


def test_the_sum_rule_acts_only_above_what_the_best_sustain() -> None:
    state = wrap(learner([0.5, 0.25, 0.2], 2), "sum", 2, 3)
    chosen = np.zeros(2, np.int64)
    for ages, acts in (([3, 3], 0), ([3, 4], 1), ([1, 1], 0)):  # 1/.5 + 1/.25 = 6
        select(state, 1, np.array(ages), None, chosen)
        assert state.rule[0]["acts"] == acts


@pytest.mark.parametrize("rule", ["sum", "per_client"])
def test_no_success_ever_means_no_hurry(rule: str) -> None:
    state = wrap(learner([0.0, 0.0, 0.0], 2), rule, 2, 3)
    chosen = np.zeros(2, np.int64)
    select(state, 1, np.array([500, 900]), None, chosen)
    overridden = np.zeros(2, np.int8)
    override(state, 1, np.array([500, 900]), np.zeros((1, 3)), chosen, overridden)
    assert not overridden.any()


def test_an_idle_client_on_time_stays_idle() -> None:
    state = wrap(learner([0.5, 0.4, 0.3], 3), "per_client", 3, 3)
    assignment = np.array([-1, 0, 1])
    overridden = np.zeros(3, np.int8)
    override(state, 1, np.array([1, 9, 1]), np.zeros((1, 3)), assignment, overridden)
    assert assignment.tolist() == [-1, 0, 1]
    assert overridden.tolist() == [0, 1, 0]


def test_the_wrapped_scheduler_learns_sees_and_answers() -> None:
    state = wrap(learner([0.5, 0.5], 1), "per_client", 1, 2)
    assert update(state, 1, np.array([1]), np.array([1], np.int8), np.zeros(1, np.int8)) == -1
    assert state.inner.counts.pulls.tolist() == [10, 11]
    told = np.zeros(2)
    means(state, told)
    assert told.tolist() == [0.5, 6 / 11]
    oracle = Game("oracle+aa", 1, 3)
    reveal(oracle.scheduler, np.array([0.1, 0.9, 0.2]), np.zeros(3, np.uint8))
    assert oracle.plan() == [1]


def test_alarms_pass_through() -> None:
    game = Game("glr-cucb+aa", 1, 2, delta=0.01, alpha=0.0)
    found = [game.play([t < 60, 0]) for t in range(120)]
    assert found.count(0) == 1
    assert game.scheduler.inner.clock[0]["tau"] == found.index(0) + 1  # the restart happened inside
