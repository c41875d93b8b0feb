"""Periods: how they are counted and compared, and what `bayes` makes of them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshband import Coordinator
from freshband._jit import entry_point
from freshband._lending import lend
from freshband.schedulers._periods import (
    _CLOSENESS,
    _MOST,
    _SHORTEST,
    believed_periods,
    expect_repeated,
    forget_periods,
    note_repeated,
    start_periods,
)

REPEATS = "outcomes repeat after 2 to 16 rounds"


class PeriodsInFractions:
    """The same by its definition: all outcomes are kept."""

    def __init__(self, channels: int, lengths: int) -> None:
        self.belief = [[Fraction(1, lengths)] * lengths for _ in range(channels)]
        self.heard: list[tuple[int, int, int]] = []

    def rates(self, channel: int, t: int) -> list[tuple[Fraction, Fraction]]:
        """Return the successes and all outcomes, prior included, of every length."""
        closeness = Fraction(_CLOSENESS)
        own = [(when, outcome) for other, when, outcome in self.heard if other == channel]
        overall = Fraction(sum(outcome for _, outcome in own) + 1, len(own) + 2)
        found = []
        for length in range(_SHORTEST, _SHORTEST + len(self.belief[channel])):
            here = [outcome for when, outcome in own if (when - t) % length == 0]
            found.append((sum(here) + closeness * overall, len(here) + closeness))
        return found

    def expect(self, channel: int, t: int) -> tuple[Fraction, Fraction]:
        mean, square = Fraction(0), Fraction(0)
        rates = self.rates(channel, t)
        for belief, (wins, tries) in zip(self.belief[channel], rates, strict=True):
            mean += belief * wins / tries
            square += belief * wins / tries * (wins + 1) / (tries + 1)
        return mean, square

    def note(self, channel: int, t: int, outcome: int) -> Fraction:
        rates = self.rates(channel, t)
        likely = [
            belief * (wins / tries if outcome else 1 - wins / tries)
            for belief, (wins, tries) in zip(self.belief[channel], rates, strict=True)
        ]
        self.belief[channel] = [share / sum(likely) for share in likely]
        self.heard.append((channel, t, outcome))
        return sum(likely, Fraction(0))


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 40), st.integers(0, 1)), max_size=40))
@settings(max_examples=40, deadline=None)
def test_it_is_bayes_rule(heard: list[tuple[int, int, int]]) -> None:
    """Outcomes may come in any order, as late ones do."""
    assert len(heard) < _MOST
    periods = start_periods(2)
    expected = PeriodsInFractions(*periods.belief.shape)
    for channel, t, outcome in heard:
        found = expect_repeated(periods, channel, t + 3)
        assert found == pytest.approx(tuple(map(float, expected.expect(channel, t + 3))))
        likelihood = note_repeated(periods, channel, t, outcome)
        assert likelihood == pytest.approx(float(expected.note(channel, t, outcome)))
        np.testing.assert_allclose(periods.belief, np.array(expected.belief, float))
    forget_periods(periods, 0.25)
    even = 0.25 / periods.belief.shape[1]
    np.testing.assert_allclose(periods.belief, 0.75 * np.array(expected.belief, float) + even)


@pytest.mark.parametrize("period", range(2, 17))
def test_every_period_up_to_sixteen_is_learnt(period: int) -> None:
    periods = start_periods(1)
    for t in range(1, 60 * period + 1):
        note_repeated(periods, 0, t, int(t % period > 0))
    rates = [expect_repeated(periods, 0, t)[0] for t in range(1, 2 * period + 1)]
    for t, rate in enumerate(rates, 60 * period + 1):
        assert rate < 0.2 if t % period == 0 else rate > 0.8
    (told,) = believed_periods(periods, trust=0.9)
    assert told > 0
    assert told % period == 0
    assert not believed_periods(periods, trust=0.4).any()


def test_what_repeats_differently_is_learnt_anew() -> None:
    periods = start_periods(1)
    for t in range(1, 6001):
        period = 7 if t <= 3000 else 11
        note_repeated(periods, 0, t, int(t % period > 1))
        forget_periods(periods, 0.3 / t)
        if t == 3000:
            assert periods.belief[0, 14 - _SHORTEST] > 0.99
    assert periods.belief[0, 11 - _SHORTEST] > 0.99


def play(coordinator: Coordinator, rounds: range, period: Any, late: int = 0) -> float:
    """Block each of five good channels in two rounds of a period; return the share of losses."""
    rng = np.random.default_rng(coordinator.round)
    waiting: dict[int, Any] = {}
    lost = 0
    for t in rounds:
        blocked = (t + 3 * np.arange(5)) % period < 2
        plan = coordinator.plan()
        delivered = (rng.random(5) < np.where(blocked, 0.02, 0.8))[plan]
        lost += int((~delivered).sum())
        if late:
            waiting[t] = delivered
            coordinator.observe([None, None])
            if t - late in waiting:
                coordinator.observe(waiting.pop(t - late), round=t - late)
        else:
            coordinator.observe(delivered)
    return lost / (2 * len(rounds))


@pytest.mark.parametrize("late", [0, 4])
def test_bayes_uses_a_period(late: int) -> None:
    """Where nothing is known of time, two of seven rounds are lost besides a fifth: 0.42."""
    coordinator = Coordinator("bayes", n_clients=2, n_channels=5, seed=1)
    play(coordinator, range(1, 1501), period=7, late=late)
    assert play(coordinator, range(1501, 2001), period=7, late=late) < 0.27
    told = coordinator.beliefs
    assert told is not None
    assert told.models[REPEATS] > 0.9
    assert told.period is not None
    assert told.period.tolist() == [14] * 5  # a multiple of 7


def test_each_channel_may_have_a_period_of_its_own() -> None:
    periods = [7, 8, 9, 11, 13]
    coordinator = Coordinator("bayes", n_clients=2, n_channels=5, seed=1)
    play(coordinator, range(1, 1501), period=periods)
    assert play(coordinator, range(1501, 2001), period=periods) < 0.25
    told = coordinator.beliefs
    assert told is not None
    assert told.period is not None
    assert told.period.min() > 0
    assert not (told.period % periods).any()  # the period, or a multiple


def test_bayes_does_not_imagine_periods() -> None:
    coordinator = Coordinator("bayes", n_clients=2, n_channels=5, seed=1)
    rng = np.random.default_rng(2)
    for _ in range(500):
        coordinator.observe(rng.random(5)[coordinator.plan()] < 0.7)
    assert coordinator.beliefs is not None
    assert coordinator.beliefs.models[REPEATS] < 0.05
    assert not np.any(coordinator.beliefs.period)


def test_extreme_outcomes_and_late_rounds_leave_probabilities() -> None:
    """Periods of constant outcomes, 200,000 rounds in turn, up to round 10^7 and beyond."""
    periods = start_periods(2)
    for start in (0, 10**7, 2**53):
        for part in range(4):
            t = _hear_many(periods, start + 50_000 * part, 50_000, part)
            np.testing.assert_allclose(periods.belief.sum(axis=1), 1.0, rtol=1e-12)
            assert (periods.belief > 0).all()
            assert (periods.counts >= 0).all()
            assert periods.counts.sum(axis=-1).max() < _MOST
            mean, square = expect_repeated(periods, 0, t)
            assert 0 < mean < 1
            assert mean * mean <= square <= mean


@entry_point
def _hear_many(periods: Any, start: int, rounds: int, part: int) -> int:
    """Let both channels hear constant, alternating, or ever the least likely outcomes."""
    periods, t = lend(periods), start
    for t in range(start, start + rounds):
        for channel in range(2):
            outcome = (0, 1, (t + channel) % 2, 0)[part]
            if part == 3:
                outcome = int(expect_repeated(periods, channel, t)[0] < 0.5)
            note_repeated(periods, channel, t, outcome)
        forget_periods(periods, 0.3 / (t + 1.0))
    return t + 1
