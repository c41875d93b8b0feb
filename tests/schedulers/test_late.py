"""Outcomes that come late, and channels that are missing, for schedulers of shared links."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshband._policy import parse_policy
from freshband.schedulers.base import (
    link_mean,
    means,
    reveal,
    score,
    select,
    select_available,
    update,
    update_late,
)
from freshband.schedulers.counts import absorb, absorb_late, start_counts
from freshband.schedulers.oracle import Oracle
from tests.reference.means import Heard, tally
from tests.schedulers.pure_bayes import start_pure
from tests.schedulers.stepping import Game

ACTIVE = ["cucb", "kl-ucb", "thompson", "glr-cucb", "bayes", "random", "oracle"]
NOBODY = np.zeros(2, np.int8)


@given(
    st.lists(
        st.tuples(st.permutations(range(4)), st.lists(st.integers(0, 1), min_size=3, max_size=3)),
        min_size=1,
        max_size=15,
    ),
    st.lists(st.integers(0, 5), min_size=45, max_size=45),
    st.none() | st.integers(1, 6),
    st.none() | st.floats(0.2, 0.99),
)
def test_counts_do_not_care_when_an_outcome_is_heard(
    history: list[Any], delays: list[int], window: int | None, discount: float | None
) -> None:
    counts = start_counts(3, 4, window, discount)
    log: list[Heard] = []
    due: list[tuple[int, Heard]] = []
    for t, (order, outcome) in enumerate([*history, *[((0, 1, 2, 3), (-1, -1, -1))] * 6], 1):
        known = [-1] * 3
        for j in range(3):
            if outcome[j] >= 0:
                heard, delay = Heard(t, order[j], outcome[j]), delays[3 * t + j - 3]
                if delay == 0:
                    known[j] = outcome[j]
                    log.append(heard)
                else:
                    due.append((t + delay, heard))
        absorb(counts, t, np.array(order[:3]), np.array(known, np.int8))
        for _, heard in [each for each in due if each[0] == t]:
            absorb_late(counts, t, heard.t, heard.channel, heard.outcome)
            log.append(heard)
        for channel in range(4):
            pulls, wins = tally(log, channel, t, window, discount)
            if pulls > 1e-9:
                assert counts.pulls[channel] == pytest.approx(pulls, rel=1e-6, abs=1e-12)
                assert counts.wins[channel] == pytest.approx(wins, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("policy", ["cucb", "glr-cucb", "random", "glr-cucb+aa-sum"])
def test_late_outcomes_count_as_one_each(policy: str) -> None:
    game = Game(policy, 2, 4)
    plan = game.plan()
    game.observe([-1, 1])
    assert update_late(game.scheduler, 1, 1, 0, plan[0], 0) == -1
    told = np.zeros(4)
    means(game.scheduler, told)
    assert told[plan].tolist() == [0.0, 1.0]


def test_outcomes_from_before_a_restart_are_ignored() -> None:
    game = Game("glr-cucb", 1, 2)
    state = game.scheduler
    game.plan()
    state.clock[0]["tau"] = 5
    assert update_late(state, 7, 5, 0, 1, 1) == -1
    assert not state.index.counts.pulls.any()
    update_late(state, 7, 6, 0, 1, 1)
    assert state.index.counts.pulls.tolist() == [0, 1]


def test_a_change_can_be_noticed_late() -> None:
    game = Game("glr-cucb", 1, 2, delta=0.01)
    state = game.scheduler
    for when in range(1, 61):
        assert update_late(state, 200, when, 0, 1, 1) == -1
    alarms = [update_late(state, 200, when, 0, 1, 0) for when in range(61, 121)]
    assert alarms.index(1) < 30
    assert state.clock[0]["tau"] == 200
    assert set(alarms[alarms.index(1) + 1 :]) == {-1}  # the rest is from before the restart


@pytest.mark.parametrize("policy", [*ACTIVE, "cucb+aa-sum", "bayes+aa"])
@given(st.lists(st.booleans(), min_size=6, max_size=6).filter(any), st.integers(1, 6), st.data())
def test_only_available_channels_are_selected(
    policy: str, mask: list[bool], slots: int, data: st.DataObject
) -> None:
    slots = min(slots, sum(mask))
    game_state = parse_policy(policy).start(6, 6, np.random.default_rng(1), 100)[0]
    t = data.draw(st.integers(1, 30))
    chosen = np.full(slots, -1)
    ages = np.array(data.draw(st.lists(st.integers(1, 9), min_size=slots, max_size=slots)))
    rng, scores = np.random.default_rng(2), np.zeros((1, 6))
    assert select_available(game_state, t, ages, rng, np.array(mask, np.int8), scores, chosen)
    assert len(set(chosen.tolist())) == slots
    assert all(mask[channel] for channel in chosen)


@pytest.mark.parametrize("policy", ["cucb", "bayes", "oracle"])
def test_with_all_channels_the_same_ones_are_selected(policy: str) -> None:
    game = Game(policy, 2, 5, **({"unrest": 0.0} if policy == "bayes" else {}))
    for row in np.random.default_rng(3).integers(0, 2, (20, 5)):
        reveal(game.scheduler, np.linspace(0.1, 0.9, 5), row.astype(np.uint8))
        game.play(row)
    everywhere, here = np.zeros(2, np.int64), np.zeros(2, np.int64)
    select(game.scheduler, 21, np.ones(2, np.int64), game.rng, everywhere)
    every = np.ones(5, np.int8)
    select_available(game.scheduler, 21, np.ones(2), game.rng, every, np.zeros((1, 5)), here)
    assert set(everywhere.tolist()) == set(here.tolist())


def shared_bayes(hazard: float) -> Any:
    state = start_pure(2, 3, slots=8)
    state.hazards[:] = hazard
    return state


def test_bayes_without_switches_does_not_care_when_it_hears() -> None:
    """All channels are used in every round: one that is not may have switched while it was idle."""
    rng, nobody = np.random.default_rng(4), np.zeros(3, np.int8)
    at_once, later = shared_bayes(1e-12), shared_bayes(1e-12)
    kept = []
    for t in range(1, 31):
        assignment = rng.permutation(3)
        outcome = (rng.random(3) < 0.7).astype(np.int8)
        update(at_once, t, assignment, outcome, nobody)
        update(later, t, assignment, np.full(3, -1, np.int8), nobody)
        kept += [(t, int(k), int(x)) for k, x in zip(assignment, outcome, strict=True)]
    for when, channel, x in kept:
        update_late(later, 30, when, 0, channel, x)
    told = np.zeros(3)
    means(later, told)
    np.testing.assert_allclose(told, at_once.mean, atol=1e-3)
    chosen = [np.zeros(2, np.int64) for _ in range(2)]
    for state, into in zip((at_once, later), chosen, strict=True):
        select(state, 31, None, np.random.default_rng(0), into)
    assert set(chosen[0].tolist()) == set(chosen[1].tolist())


def test_bayes_keeps_late_outcomes_from_younger_segments() -> None:
    state = shared_bayes(0.01)
    for t in range(1, 7):
        update(state, t, np.array([0, 1]), np.array([1, t % 2], np.int8), NOBODY)
    tries = [segments.tries.copy() for segments in (state.alone, state.together)]
    update_late(state, 6, 3, 0, 1, 1)
    for segments, before in zip((state.alone, state.together), tries, strict=True):
        group = 1 if len(segments.fresh) > 1 else 0
        touched = segments.tries[1] != before[1]
        assert touched.tolist() == (segments.since[group] <= 3).tolist()
        assert (segments.tries[[0, 2]] == before[[0, 2]]).all()
        assert segments.since[group, segments.fresh[group]] == 7
        weight = (segments.weight * segments.scale[:, :, None]).sum(axis=-1)
        np.testing.assert_allclose(weight, 1.0, rtol=1e-9)
    update(state, 7, np.array([-1, -1]), np.array([-1, -1], np.int8), NOBODY)
    update_late(state, 7, 7, 0, 2, 1)  # the fresh beginning hears it, and is fresh no more
    for segments in (state.alone, state.together):
        group = 2 if len(segments.fresh) > 1 else 0
        assert segments.since[group, segments.fresh[group]] == 8
        assert not segments.tries[2, segments.fresh[group]].any()


@pytest.mark.parametrize("selection", ["mean", "csi", "fixed"])
def test_an_oracle_scores_every_link(selection: str) -> None:
    oracle = Oracle(selection=selection).start_links(2, 3, np.random.default_rng(0), None)
    rates = np.array([[0.1, 0.2, 0.3], [0.5, 0.8, 0.7]])
    counts = np.array([[7.0, 3.0, 5.0], [1.0, 0.0, 2.0]])
    oracle.values[:] = counts  # what only a fixed one is told in advance
    good = np.array([[0, 1, 1], [1, 0, 0]], np.uint8)
    reveal(oracle, rates, good)
    scores, chosen, told = np.zeros((2, 3)), np.zeros(3, np.int64), np.zeros(3)
    select(oracle, 1, None, None, chosen)
    score(oracle, 1, scores)
    means(oracle, told)
    assert chosen.tolist() == [0, 1, 2]
    expected = {"mean": rates, "csi": good, "fixed": counts}[selection]
    assert scores.tolist() == expected.tolist()
    assert told.tolist() == rates.mean(axis=0).tolist()
    assert link_mean(oracle, 1, 2) == 0.7
