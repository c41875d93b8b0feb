"""The GLR test on several channels: who hears what, how late, and how often falsely."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from freshband.detectors import glr
from freshband.detectors.base import forget, forget_all, push
from freshband.detectors.glr import Glr
from freshband.states import reserve
from tests.detectors.feeding import COMPILED, bernoulli, feed, streams

# ------------------------------------------------------------------------------ several channels


def test_channels_do_not_hear_each_other() -> None:
    rng = np.random.default_rng(27)
    rates = np.array([np.repeat(pair, 150) for pair in ((0.9, 0.2), (0.5, 0.5), (0.1, 0.8))])
    air = (rng.random(rates.shape) < rates).astype(np.int8)
    together = reserve(Glr(delta=0.01).start(3), 300)
    alarms = np.zeros((3, 300), np.bool_)
    for t in range(300):
        for channel in rng.permutation(3):
            alarms[channel, t] = push(together, int(channel), int(air[channel, t]))
    for channel in range(3):
        alone = reserve(Glr(delta=0.01).start(1), 300)
        np.testing.assert_array_equal(alarms[channel], feed(alone, air[channel], plain=True).alarm)
    assert alarms[0].any()
    assert alarms[2].any()


def test_forget_clears_one_stream_and_forget_all_every_one() -> None:
    state = Glr(delta=0.05).start(3)
    for channel in range(3):
        for outcome in [1] * 9 + [0] * 30:
            push(state, channel, outcome)
    kept = state.book[2].copy()
    forget(state, 1)
    assert state.book["count"].tolist() == [39, 0, 39]
    assert state.book[1]["size"].tolist() == [0, 0]
    assert state.book[2] == kept
    forget_all(state)
    assert state.book["count"].tolist() == [0, 0, 0]
    assert state.book["ones"].tolist() == [0, 0, 0]
    assert state.book["statistic"].tolist() == [0, 0, 0]


def test_most_observations_need_no_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    honest = glr._evaluate

    def counted(state: Any, channel: int) -> bool:
        nonlocal calls
        calls += 1
        return bool(honest(state, channel))

    monkeypatch.setattr(glr, "_evaluate", counted)
    outcomes = bernoulli(np.random.default_rng(28), np.full(4000, 0.5))
    detector = reserve(Glr(delta=0.001).start(1), 4000)
    assert not any(push(detector, 0, int(x)) for x in outcomes)
    assert 10 < calls < 4000 / 8


# ------------------------------------------------------------------ T5: delays and false alarms


@pytest.mark.parametrize(
    ("before", "after", "healthy", "spec", "watched"),
    [(0.8, 0.3, 1000, 30, 150), (0.8, 0.6, 1000, 197, 900), (0.9, 0.1, 3000, 11, 60),
     (0.2, 0.5, 3000, 82, 400)],
)  # fmt: skip
def test_median_delay_and_location(
    before: float, after: float, healthy: int, spec: int, watched: int
) -> None:
    """T5, δ = 0.001, the paper's threshold.

    The margin is 4 % for the prototype's sampling error, one observation for its rounding, and five
    standard errors of our median: 1.25 sd / sqrt(runs).
    """
    runs = 3000 if COMPILED else 3
    rng = np.random.default_rng(29)
    rates = np.repeat((before, after), (healthy, watched))
    alarm, split = streams(Glr(delta=0.001).start(1), rng.random((runs, len(rates))) < rates)
    assert np.mean((alarm > 0) & (alarm <= healthy)) < 0.01  # hardly ever before the change
    if not COMPILED:
        return
    heard = alarm[alarm > healthy]
    assert len(heard) > 0.98 * runs
    delay = heard - healthy
    margin = 0.04 * spec + 1 + 5 * 1.25 * delay.std() / math.sqrt(runs)
    assert np.median(delay) == pytest.approx(spec, abs=margin)
    error = np.abs(split[alarm > healthy] - healthy)
    assert np.median(error) <= 0.05 * spec + 1
    assert np.mean(error <= 0.4 * spec) > 0.9


@pytest.mark.parametrize(("rate", "spec"), [(0.02, 1), (0.1, 7), (0.5, 10), (0.9, 6)])
def test_false_alarms_in_20_000_samples(rate: float, spec: int) -> None:
    """erratum E15g, δ = 0.05: so many of 1000 streams alarm; five sigma of two Poisson counts."""
    runs = 1000 if COMPILED else 1
    rng = np.random.default_rng(30)
    detector = Glr(delta=0.05).start(1)
    false = 0
    for _ in range(runs // 100 or 1):
        drawn = rng.random((min(runs, 100), 20_000 if COMPILED else 300), dtype=np.float32) < rate
        false += int(np.count_nonzero(streams(detector, drawn)[0]))
    assert abs(false - spec) <= 5 * math.sqrt(false + spec)
    assert false <= 0.05 * runs  # what δ promises
