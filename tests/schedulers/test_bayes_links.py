"""Bayes filters of links that may differ, against a plain mixture, and what they find out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshband import Coordinator
from freshband._jit import entry_point
from freshband._lending import lend
from freshband.schedulers import _bayes_links
from freshband.schedulers._link_rates import ADDITIVE, APART, SHARED, SPIKED
from freshband.schedulers.base import link_mean, means, score, select, update, update_late
from freshband.schedulers.bayes import Bayes
from tests.reference.links import Mixture
from tests.schedulers.pure_bayes import start_pure


def start(n_clients: int, n_channels: int, **options: Any) -> Any:
    return Bayes(**options).start_links(n_clients, n_channels, np.random.default_rng(0), None)


def hear(state: Any, t: int, assignment: Any, outcome: Any) -> None:
    channels, heard = np.array(assignment, np.int64), np.array(outcome, np.int8)
    alarm = update(state, t, channels, heard, np.zeros(len(heard), np.int8))
    assert alarm == -1 or alarm in channels


@entry_point
def live(scheduler: Any, rates: Any, draws: Any, first: int) -> None:
    """Let clients take turns on the channels: client i sends on channel i + t modulo N."""
    scheduler = lend(scheduler)
    rounds, n_clients = draws.shape
    n_channels = rates.shape[1]
    assignment, outcome = np.zeros(n_clients, np.int64), np.zeros(n_clients, np.int8)
    overridden = np.zeros(n_clients, np.int8)
    for r in range(rounds):
        for i in range(n_clients):
            assignment[i] = (i + r) % n_channels
            outcome[i] = draws[r, i] < rates[i, assignment[i]]
        update(scheduler, first + r, assignment, outcome, overridden)


def scores_of(state: Any, ages: list[float]) -> Any:
    n_clients, n_channels = state.mean.shape
    chosen, scores = np.zeros(n_channels, np.int64), np.zeros((n_clients, n_channels))
    select(state, 1, np.array(ages), None, chosen)
    score(state, 1, scores)
    assert chosen.tolist() == list(range(n_channels))
    return scores


sizes = st.sampled_from([(1, 1), (2, 3), (3, 2), (1, 4)])
rounds = st.lists(
    st.tuples(
        st.permutations(range(4)),
        st.lists(st.sampled_from((-1, 0, 1, 1)), min_size=3, max_size=3),
        st.none() | st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 3)),
    ),
    min_size=1,
    max_size=6,
)


@given(sizes, rounds)
@settings(max_examples=25, deadline=None)
def test_it_is_the_plain_mixture(size: tuple[int, int], history: list[Any]) -> None:
    """Also with idle clients, unknown outcomes, late ones, and more clients than channels."""
    m, n = size
    state = start(m, n, slots=40)
    plain = Mixture(m, n, state.hazards.tolist(), _bayes_links._FORGET)
    for t, (order, outcome, late) in enumerate(history, 1):
        assignment = [k if k < n else -1 for k in order[:m]]
        hear(state, t, assignment, outcome[:m])
        known = [
            (i, k, x)
            for i, (k, x) in enumerate(zip(assignment, outcome[:m], strict=True))
            if k >= 0 and x >= 0
        ]
        plain.hear(t, known)
        if late is not None:
            when, client, channel = max(t - late[0], 1), late[1] % m, late[2] % n
            update_late(state, t, when, client, channel, t % 2)
            plain.hear_late(t, when, (client, channel, t % 2))
    trust = [[plain.trust[way, h] for h in range(5)] for way in range(6)]
    np.testing.assert_allclose(state.trust, trust, rtol=1e-7)
    for client in range(m):
        for channel in range(n):
            mean, gain = plain.estimate(client, channel)
            assert link_mean(state, client, channel) == pytest.approx(mean, rel=1e-7)
            assert state.gain[client, channel] == pytest.approx(gain, abs=1e-7)


def assert_probabilities(state: Any) -> None:
    scores_of(state, [1.0] * len(state.mean))
    np.testing.assert_allclose(state.weight.sum(axis=-1), 1.0, rtol=1e-9)
    np.testing.assert_allclose(state.trust.sum(), 1.0, rtol=1e-9)
    assert ((state.mean > 0) & (state.mean < 1)).all()
    assert ((state.gain >= 0) & (state.gain < 1)).all()
    assert (state.offset_variance > 0).all()
    assert (state.level_variance > 0).all()
    assert not state.tries[state.fresh[0]].any()


@given(st.integers(2, 9), sizes, rounds)
@settings(max_examples=30, deadline=None)
def test_giving_beginnings_up_leaves_probabilities(slots: int, size: Any, history: Any) -> None:
    m, n = size
    state = start(m, n, slots=slots)
    for t, (order, outcome, _) in enumerate(history * 2, 1):
        hear(state, t, [k if k < n else -1 for k in order[:m]], outcome[:m])
        assert_probabilities(state)


@pytest.mark.parametrize("n_clients", [31, 32, 33, 1500])
def test_likelihoods_of_many_outcomes_stay_numbers(n_clients: int) -> None:
    state = start(n_clients, 3)
    draws = np.full((40, n_clients), 0.5)
    live(state, np.ones((n_clients, 3)), draws, 1)
    assert_probabilities(state)
    live(state, np.zeros((n_clients, 3)), draws, 41)
    assert_probabilities(state)
    assert state.mean.max() < 0.1


def test_a_hundred_thousand_rounds_leave_numbers() -> None:
    rng = np.random.default_rng(1)
    state = start(2, 3, slots=8)
    for part in range(2):
        rates = np.array([[1.0, 0.0, 0.5], [1.0, 0.9, 0.0]]) if part else np.full((2, 3), 0.7)
        live(state, rates, rng.random((50_000, 2)), 1 + part * 50_000)
        assert_probabilities(state)
        np.testing.assert_allclose(state.mean, rates, atol=0.03)


@pytest.mark.parametrize("kind", ["shared", "apart", "spiked", "additive"])
def test_it_finds_out_how_links_differ(kind: str) -> None:
    rng = np.random.default_rng(3)
    m, n = 12, 16
    of_channel, of_link = rng.uniform(0.1, 0.9, (1, n)), rng.uniform(0.1, 0.9, (m, n))
    logit = np.log(of_channel / (1 - of_channel)) + rng.normal(0, 2, (m, 1))
    rates = {
        "shared": np.repeat(of_channel, m, axis=0),
        "apart": of_link,
        "spiked": np.where(rng.random((m, n)) < 0.2, of_link, of_channel),
        "additive": 1 / (1 + np.exp(-logit)),
    }[kind]
    state = start(m, n)
    live(state, rates, rng.random((800, m)), 1)
    trust = state.trust.sum(axis=1)
    best = {"shared": SHARED, "apart": APART, "spiked": SPIKED, "additive": ADDITIVE}[kind]
    if kind == "apart":  # a weakly centred link is nearly a link of its own
        assert trust[[SHARED, SPIKED, ADDITIVE]].sum() < 0.01
    else:
        assert trust[best] > 0.9
    scores_of(state, [1.0] * m)
    assert np.abs(state.mean - rates).mean() < 0.08  # 50 outcomes each: 0.05 for all that differ


def test_shared_links_are_learned_as_by_the_shared_filter() -> None:
    rng = np.random.default_rng(5)
    m, n = 4, 6
    links = start(m, n)
    shared = start_pure(m, n)
    rates = rng.uniform(0.1, 0.9, (2, n))
    apart = []
    for t in range(1, 401):
        assignment = rng.permutation(n)[:m]
        outcome = rng.random(m) < rates[t // 200 % 2][assignment]
        hear(links, t, assignment, outcome)
        update(shared, t, assignment, outcome.astype(np.int8), np.zeros(m, np.int8))
        told = np.zeros(n)
        means(links, told)
        apart.append(np.abs(told - shared.mean).max())
    assert np.quantile(apart[100:200] + apart[300:], 0.9) < 0.1


def test_late_outcomes_are_as_good_as_those_in_time() -> None:
    """Without switches their order does not matter to counts."""
    rng = np.random.default_rng(7)
    at_once, later = start(3, 3, slots=8), start(3, 3, slots=8)
    at_once.hazards[:] = later.hazards[:] = 1e-12
    kept = []
    for t in range(1, 41):
        assignment = rng.permutation(3)
        outcome = (rng.random(3) < (0.9, 0.5, 0.2)).astype(np.int8)
        hear(at_once, t, assignment, outcome)
        hear(later, t, assignment, [-1] * 3)
        kept += [(t, i, int(assignment[i]), int(outcome[i])) for i in range(3)]
    for when, client, channel, x in kept:
        assert update_late(later, 40, when, client, channel, x) in (-1, channel)
    old = [int(state.since.argmin()) for state in (at_once, later)]
    assert (at_once.wins[old[0]] == later.wins[old[1]]).all()
    assert (at_once.tries[old[0]] == later.tries[old[1]]).all()
    for state in (at_once, later):
        scores_of(state, [1.0] * 3)
    np.testing.assert_allclose(later.mean, at_once.mean, atol=0.01)


def test_a_late_outcome_says_nothing_about_younger_beginnings() -> None:
    state = start(2, 2)
    for t in range(1, 11):
        hear(state, t, [0, 1], [t % 2, 1])
    before = state.tries.copy()
    update_late(state, 10, 5, 1, 0, 1)
    touched = (state.tries != before).any(axis=(1, 2))
    assert touched.tolist() == (state.since <= 5).tolist()
    assert state.since[state.fresh[0]] == 11


def test_a_late_outcome_ends_a_beginning_that_had_none() -> None:
    state = start(1, 2)
    hear(state, 1, [0], [1])
    hear(state, 2, [1], [-1])
    assert state.since[state.fresh[0]] == 2
    update_late(state, 2, 2, 0, 1, 1)
    assert state.since[state.fresh[0]] == 3
    assert not state.tries[state.fresh[0]].any()


def test_young_clients_explore_and_optimism_scales_it() -> None:
    state = start(3, 4)
    hear(state, 1, [0, 1, 2], [1, 0, 1])
    scores = scores_of(state, [1.0, 5.0, 0.0])
    expected = state.mean + state.gain / np.array([[1.0], [5.0], [1.0]])
    np.testing.assert_allclose(scores, expected, rtol=1e-12)
    cold = start(3, 4, optimism=0.0)
    hear(cold, 1, [0, 1, 2], [1, 0, 1])
    assert (scores_of(cold, [1.0, 5.0, 2.0]) == cold.mean).all()


def test_a_change_of_links_is_reported_and_explained() -> None:
    rates = np.array([[0.9, 0.2, 0.5], [0.1, 0.8, 0.4]])
    rng = np.random.default_rng(3)
    coordinator = Coordinator("bayes", 2, 3, links="differ", seed=1)
    alarms = []
    for t in range(1, 601):
        now = rates if t <= 400 else np.roll(rates, 1, axis=1)
        plan = coordinator.plan()
        if coordinator.observe(rng.random(2) < now[[0, 1], plan]) is not None:
            alarms.append(t)
        if t == 400:
            before = coordinator.beliefs
    (alarm,) = alarms
    assert 400 < alarm < 460
    assert before is not None
    assert sum(before.models.values()) == pytest.approx(1.0)
    assert before.models["all links differ"] > 0.5
    assert before.changed.max() < 0.5
    assert before.segment_age.min() > 200
    after = coordinator.beliefs
    assert after is not None
    assert after.segment_age.max() < 300
    np.testing.assert_allclose(after.rate.mean(axis=0), coordinator.channel_means, atol=2e-3)
    assert after.rate[0, 1] == pytest.approx(0.9, abs=0.1)
    assert (after.spread > 0).all()
    assert after.spread[0, 1] < after.spread[0, 2]  # a link in use is known better
