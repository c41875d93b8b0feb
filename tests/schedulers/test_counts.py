"""Lifetime, windowed and discounted means against a complete log."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshband.schedulers.base import means
from freshband.schedulers.counts import _UNHEARD, absorb, clear, clear_all, keep, start_counts
from freshband.schedulers.cucb import Cucb
from freshband.schedulers.m_exp3 import MExp3
from tests.reference.means import Heard, entries, tally
from tests.schedulers.stepping import Game

N_CHANNELS, N_CLIENTS = 4, 3

rounds = st.lists(
    st.tuples(
        st.permutations(range(N_CHANNELS)).map(lambda order: list(order[:N_CLIENTS])),
        st.lists(st.sampled_from((-1, 0, 1)), min_size=N_CLIENTS, max_size=N_CLIENTS),
        st.lists(st.booleans(), min_size=N_CLIENTS, max_size=N_CLIENTS),
    ),
    min_size=1,
    max_size=30,
)


@given(rounds, st.none() | st.integers(1, 12), st.none() | st.floats(0.05, 0.999))
def test_means_are_those_of_the_log(
    history: list[Any], window: int | None, discount: float | None
) -> None:
    counts = start_counts(N_CLIENTS, N_CHANNELS, window, discount)
    log: list[Heard] = []
    for t, (channels, outcome, idle) in enumerate(history, start=1):
        assignment = [-1 if off else k for k, off in zip(channels, idle, strict=True)]
        absorb(counts, t, np.array(assignment), np.array(outcome, np.int8))
        log += entries(t, assignment, outcome)
        for channel in range(N_CHANNELS):
            pulls, wins = tally(log, channel, t, window, discount)
            if pulls > 1e-9:
                assert counts.pulls[channel] == pytest.approx(pulls, rel=1e-9)
                assert counts.wins[channel] == pytest.approx(wins, rel=1e-9, abs=1e-12)
                assert counts.mean[channel] == pytest.approx(wins / pulls, rel=1e-9, abs=1e-12)
                assert counts.width[channel] == pytest.approx(1 / math.sqrt(pulls), rel=1e-9)
            else:
                assert counts.pulls[channel] == counts.wins[channel] == 0
                assert counts.mean[channel] == _UNHEARD == 0.5
                assert counts.width[channel] == math.inf


def test_a_windowed_mean_is_windowed() -> None:
    """Ten losses leave the window as ten successes come in; a lifetime mean would be one half."""
    counts = start_counts(1, 2, window=10)
    for t in range(1, 21):
        absorb(counts, t, np.array([1]), np.array([t > 10], np.int8))
    assert counts.mean[1] == 1.0
    assert counts.pulls[1] == 10.0
    for t in range(21, 31):  # nothing heard any more
        absorb(counts, t, np.array([1]), np.array([-1], np.int8))
    assert counts.pulls[1] == 0.0
    assert counts.mean[1] == _UNHEARD


def test_a_discounted_count_fades_to_never_heard() -> None:
    counts = start_counts(1, 2, discount=0.5)
    absorb(counts, 1, np.array([0]), np.array([1], np.int8))
    for t in range(2, 30):
        absorb(counts, t, np.array([1]), np.array([0], np.int8))
    assert counts.mean[0] == 1.0  # its weight faded, its mean did not
    assert counts.pulls[0] == pytest.approx(0.5**28)
    for t in range(30, 40):
        absorb(counts, t, np.array([1]), np.array([0], np.int8))
    assert counts.pulls[0] == 0.0
    assert counts.mean[0] == _UNHEARD


@pytest.mark.parametrize(
    "scheduler",
    [Cucb(mean_window=5, discount=0.9), MExp3(mean_window=5)],  # whose default discount is 0.99
)
def test_window_and_discount_together(scheduler: Any) -> None:
    """A pull that leaves the window takes with it what the discount left of it, no more."""
    counts = scheduler.start(1, 2, np.random.default_rng(0), 100).counts
    log: list[Heard] = []
    for t in range(1, 31):
        channel, outcome = int(t % 7 == 0), int(t % 3 == 0)
        absorb(counts, t, np.array([channel]), np.array([outcome], np.int8))
        log += entries(t, [channel], [outcome])
        for k in range(2):
            pulls, wins = tally(log, k, t, scheduler.mean_window, scheduler.discount)
            assert counts.pulls[k] == pytest.approx(pulls, abs=1e-12)
            assert counts.wins[k] == pytest.approx(wins, abs=1e-12)
            assert counts.mean[k] == pytest.approx(wins / pulls if pulls else _UNHEARD, abs=1e-9)


def test_keep_clear_and_clear_all() -> None:
    counts = start_counts(2, 3, window=4)
    for t in range(1, 4):
        absorb(counts, t, np.array([0, 1]), np.array([1, 0], np.int8))
    keep(counts, 2, 4.0, 3.0)
    assert counts.mean[2] == 0.75
    assert counts.width[2] == 0.5
    clear(counts, 0)
    assert counts.pulls.tolist() == [0, 3, 4]
    assert counts.mean.tolist() == [0.5, 0, 0.75]
    clear_all(counts)
    assert counts.pulls.tolist() == [0, 0, 0]
    absorb(counts, 4, np.array([0, 1]), np.array([1, 1], np.int8))
    absorb(counts, 5, np.array([0, 1]), np.array([1, 1], np.int8))  # round 1 is gone already
    assert counts.pulls.tolist() == [2, 2, 0]


@pytest.mark.parametrize(
    "policy", ["random", "cucb", "kl-ucb", "thompson", "glr-cucb", "m-exp3", "glr-cucb+aa"]
)
def test_every_learner_tells_the_means_it_heard(policy: str) -> None:
    """Unknown outcomes count nowhere."""
    options = {"discount": None} if policy == "m-exp3" else {}
    game = Game(policy, 2, 4, seed=1, **options)
    rng = np.random.default_rng(2)
    log: list[Heard] = []
    for t in range(1, 41):
        plan = game.plan()
        outcome = rng.choice([-1, 0, 1], 2).tolist()
        assert game.observe(outcome) == -1
        log += entries(t, plan, outcome)
    told = np.zeros(4)
    means(game.scheduler, told)
    for channel in range(4):
        pulls, wins = tally(log, channel, 40, None, None)
        assert told[channel] == (wins / pulls if pulls else 0.5)
