"""The exact GLR test against the scan over all splits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from freshband.detectors import glr
from freshband.detectors.base import forget, push
from freshband.detectors.glr import _THRESHOLDS, Glr, _hull_capacity
from freshband.states import reserve
from tests.detectors.feeding import COMPILED, Alarms, bernoulli, feed
from tests.reference.glr import limits, scan, scan_in_numpy, value_at

DELTAS = (0.3, 0.05, 1e-3, 1e-6)
RATES = (0.0, 0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98, 1.0)


def assert_same_decisions(
    outcomes: NDArray[np.int8],
    delta: float,
    rule: str,
    resets: NDArray[np.bool_] | None = None,
    said: Alarms | None = None,
) -> int:
    """Hold the detector against the scan at every observation; return the number of alarms."""
    if said is None:
        detector = reserve(Glr(delta=delta, threshold=rule).start(1), len(outcomes))
        said = feed(detector, outcomes, resets)
    verdicts = scan(outcomes, limits(len(outcomes), delta, rule), resets)
    np.testing.assert_array_equal(said.alarm, verdicts.alarm)
    starts = np.zeros(len(outcomes), np.int64)  # where the stream around each observation began
    if resets is not None:
        starts = np.maximum.accumulate(np.where(resets, np.arange(len(outcomes)), 0))
    for i in np.flatnonzero(said.alarm)[:20]:  # where: another split only if it is as good
        sums = np.concatenate(([0], np.cumsum(outcomes[starts[i] : i + 1], dtype=np.int64)))
        split, n = said.split[i], len(sums) - 1
        assert value_at(sums, split, n) == pytest.approx(verdicts.statistic[i], abs=1e-9)
        assert said.statistic[i] == pytest.approx(verdicts.statistic[i], abs=1e-9)
        assert said.before[i] == sums[split]
    return int(said.alarm.sum())


# ------------------------------------------------------------------------ the scan itself (trust)


@given(st.lists(st.integers(0, 1), min_size=1, max_size=60))
def test_two_references_agree(outcomes: list[int]) -> None:
    stream = np.array(outcomes, np.int8)
    verdicts = scan(stream, limits(len(stream), 0.05, "paper"))
    best, where = scan_in_numpy(stream)
    assert verdicts.statistic[-1] == pytest.approx(best, abs=1e-11)
    if where > 0:
        sums = np.concatenate(([0], np.cumsum(stream, dtype=np.int64)))
        assert value_at(sums, where, len(stream)) == pytest.approx(best, abs=1e-11)


# -------------------------------------------------------------------------- T4: equal to the scan


segments = st.lists(
    st.tuples(st.integers(1, 150), st.sampled_from(RATES) | st.floats(0, 1)), min_size=1, max_size=5
)


@given(
    segments,
    st.sampled_from(_THRESHOLDS),
    st.sampled_from(DELTAS) | st.floats(1e-9, 0.9),
    st.sampled_from((0.0, 0.005, 0.05)),
    st.integers(0, 2**32),
)
@settings(max_examples=250 if COMPILED else 5)
def test_same_decision_as_the_scan_at_every_observation(
    parts: list[tuple[int, float]], rule: str, delta: float, reset_rate: float, seed: int
) -> None:
    rates = np.repeat([p for _, p in parts], [n for n, _ in parts])[:300]
    rng = np.random.default_rng(seed)
    for _ in range(8):
        resets = rng.random(len(rates)) < reset_rate
        assert_same_decisions(bernoulli(rng, rates), delta, rule, resets)


@given(
    st.lists(st.integers(0, 1), min_size=1, max_size=80),
    st.sampled_from(_THRESHOLDS),
    st.floats(0.01, 0.999),
)
@settings(max_examples=100 if COMPILED else 10)
def test_same_decision_as_the_scan_on_any_short_stream(
    outcomes: list[int], rule: str, delta: float
) -> None:
    assert_same_decisions(np.array(outcomes, np.int8), delta, rule)


def test_same_decision_as_the_scan_a_million_times() -> None:
    rng = np.random.default_rng(20)
    decisions = alarms = 0
    for length, count in ((300, 3300), (4000, 8), (3000, 6)) if COMPILED else ((300, 16),):
        for i in range(count):
            lengths = rng.multinomial(length, rng.dirichlet(np.ones(rng.integers(1, 6))))
            rates = np.repeat(rng.choice(RATES, len(lengths)), lengths)
            resets = rng.random(length) < rng.choice((0.0, 0.0, 2 / length))
            delta, rule = DELTAS[i % 4], _THRESHOLDS[i // 4 % 4]
            alarms += assert_same_decisions(bernoulli(rng, rates), delta, rule, resets)
            decisions += length
    assert alarms > decisions / 10
    assert decisions > 1_000_000 or not COMPILED


def test_goes_on_equal_to_the_scan_after_it_started_afresh_at_its_own_alarms() -> None:
    rng = np.random.default_rng(21)
    total = 0
    for rule in _THRESHOLDS:
        rates = np.repeat(rng.choice(RATES, 12), 150)
        outcomes = bernoulli(rng, rates)
        resets = np.zeros(len(outcomes) + 1, np.bool_)
        detector = reserve(Glr(delta=0.01, threshold=rule).start(1), len(outcomes))
        alarm = np.zeros(len(outcomes), np.bool_)
        for i, outcome in enumerate(outcomes):  # plain Python: resets depend on what it says
            alarm[i] = push(detector, 0, int(outcome))
            if alarm[i]:
                forget(detector, 0)
                resets[i + 1] = True
        verdicts = scan(outcomes, limits(len(outcomes), 0.01, rule), resets[:-1])
        np.testing.assert_array_equal(alarm, verdicts.alarm)
        total += int(alarm.sum())
    assert total >= 12


@pytest.mark.parametrize("rule", _THRESHOLDS)
@pytest.mark.parametrize("delta", [0.9, 0.01])
def test_a_fresh_stream_owes_nothing_to_the_one_before(rule: str, delta: float) -> None:
    """Patience left over from 400 quiet observations would sleep through a change."""
    quiet = np.tile(np.array([0, 1], np.int8), 200)
    for length in (3, 5, 8, 20, 60):
        for loud in ([1, 0], [0, 1]):
            fresh = np.repeat(np.array(loud, np.int8), length)
            outcomes = np.concatenate((quiet, fresh, quiet[:77], fresh))
            resets = np.isin(np.arange(len(outcomes)), (400, 400 + len(fresh) + 77))
            alarms = assert_same_decisions(outcomes, delta, rule, resets)
            assert alarms > 0 or length < 60


def test_between_evaluations_the_statistic_stays_within_what_was_paid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """G can grow by at most the price of the observations since: level - G >= patience left."""
    level = 0.0
    honest = glr._evaluate

    def noted(state: Any, channel: int) -> bool:
        nonlocal level
        book = state.book[channel]
        level = glr._level(
            int(book["count"]), float(state.rule[0]["delta"]), int(state.rule[0]["threshold"])
        )
        return bool(honest(state, channel))

    monkeypatch.setattr(glr, "_evaluate", noted)
    rng = np.random.default_rng(31)
    tightest = math.inf
    for low, high, healthy in ((0.5, 0.5, 150), (0.0, 1.0, 60), (0.9, 0.0, 150), (0.05, 0.7, 200)):
        outcomes = bernoulli(rng, np.repeat((low, high), (healthy, 100)))
        grown = scan(outcomes, limits(len(outcomes), 1e-9, "besson")).statistic
        detector = reserve(Glr(delta=1e-9, threshold="besson").start(1), len(outcomes))
        for outcome, statistic in zip(outcomes, grown, strict=True):
            push(detector, 0, int(outcome))
            slack = level - statistic - float(detector.book[0]["patience"])
            assert slack > 0
            tightest = min(tightest, slack)
    assert tightest < 1e-5  # right after an evaluation it is what rounding needs, no more


def test_rounding_in_the_table_cannot_turn_a_decision() -> None:
    rng = np.random.default_rng(22)
    near = 0
    for _ in range(60 if COMPILED else 6):
        length = int(rng.integers(60, 250))
        change = length // 2
        outcomes = bernoulli(rng, np.repeat((0.9, 0.2), (change, length - change)))
        statistic = scan(outcomes, limits(length, 0.5, "besson")).statistic[-1]
        for offset in (-1e-9, 1e-9):  # a threshold that close to G at the end
            delta = 3 * length**1.5 * math.exp(-statistic + offset)
            if delta < 1:
                detector = reserve(Glr(delta=delta, threshold="besson").start(1), length)
                noise = rng.uniform(-1e-8, 1e-8, len(detector.table))
                detector = detector._replace(table=detector.table + noise)
                said = feed(detector, outcomes)
                verdicts = scan(outcomes, limits(length, delta, "besson"))
                np.testing.assert_array_equal(said.alarm, verdicts.alarm)
                near += 1
    assert near > (80 if COMPILED else 5)


@pytest.mark.parametrize("rule", _THRESHOLDS)
def test_beyond_the_end_of_the_table_logarithms_are_computed(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glr, "_TABLE_END", 16)
    rng = np.random.default_rng(23)
    length = 800 if COMPILED else 200
    for rates in ((0.5, 0.5), (0.9, 0.2), (0.0, 1.0)):
        outcomes = bernoulli(rng, np.repeat(rates, length // 2))
        detector = Glr(delta=0.05, threshold=rule).start(1)._replace(table=glr._table(16))
        detector = reserve(detector, length)
        assert len(detector.table) == 16
        assert_same_decisions(outcomes, 0.05, rule, said=feed(detector, outcomes))


def test_compiled_and_plain_take_the_same_decisions_and_leave_the_same_state() -> None:
    rng = np.random.default_rng(24)
    outcomes = bernoulli(rng, np.repeat((0.7, 0.2, 0.9), 200))
    resets = np.arange(600) == 500
    one, other = (reserve(Glr(delta=0.01).start(1), 600) for _ in range(2))
    for fast, slow in zip(
        feed(one, outcomes, resets), feed(other, outcomes, resets, plain=True), strict=True
    ):
        np.testing.assert_array_equal(fast, slow)
    np.testing.assert_array_equal(one.book, other.book)
    np.testing.assert_array_equal(one.hull, other.hull)


# --------------------------------------------------------------------------- the ends of [0, 1]


@pytest.mark.parametrize("outcome", [0, 1])
@pytest.mark.parametrize("rule", _THRESHOLDS)
def test_a_constant_stream_never_alarms(outcome: int, rule: str) -> None:
    length = 5000 if COMPILED else 500
    detector = reserve(Glr(delta=0.99, threshold=rule).start(1), length)
    said = feed(detector, np.full(length, outcome, np.int8))
    assert not said.alarm.any()
    assert detector.book[0]["statistic"] == 0.0
    assert detector.book[0]["count"] == length


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("rule", _THRESHOLDS)
@pytest.mark.parametrize("length", [40, 333])
def test_certainty_never_silences_the_test(first: int, rule: str, length: int) -> None:
    """kl(0, q) and kl(1, q) are finite: 0^n 1^n and 1^n 0^n are the loudest changes there are."""
    outcomes = np.repeat(np.array([first, 1 - first], np.int8), length)
    detector = reserve(Glr(delta=0.001, threshold=rule).start(1), 2 * length)
    said = feed(detector, outcomes)
    assert said.alarm[-1]
    assert said.split[-1] == length
    assert said.before[-1] == first * length
    assert said.statistic[-1] == pytest.approx(2 * length * math.log(2))  # each half certain
    first_alarm = said.alarm.argmax()
    assert first_alarm > length
    assert said.split[first_alarm] == length


def test_one_observation_has_nothing_to_split() -> None:
    detector = Glr(delta=0.999, threshold="lai").start(1)
    assert not push(detector, 0, 1)
    assert detector.book[0]["statistic"] == 0.0


# ---------------------------------------------------------------------------------- hulls and room


def primitive_vectors(longest: int) -> list[tuple[int, int]]:
    return [
        (q, p) for q in range(1, longest + 1) for p in range(q + 1) if math.gcd(p, q) == 1
    ]  # gcd(0, 1) = 1 lets in (1, 0), and no other horizontal one


@pytest.mark.parametrize("longest", [1, 2, 3, 5, 9, 14])
@pytest.mark.parametrize("side", [0, 1])
def test_hull_capacity_is_attained(longest: int, side: int) -> None:
    """Steepest edges first bulge most; each climbs late, so its end is a corner of the path."""
    edges = sorted(primitive_vectors(longest), key=lambda edge: -edge[1] / edge[0])
    path = [x for q, p in edges for x in [0] * (q - p) + [1] * p]
    outcomes = np.array(path, np.int8) if side == 0 else 1 - np.array(path, np.int8)
    capacity = _hull_capacity(len(path))
    assert capacity == len(edges)
    detector = Glr(delta=1e-12).start(1)
    detector = detector._replace(hull=np.zeros((1, 2, capacity), glr._VERTEX))  # and no more
    feed(detector, outcomes, plain=True)
    # the last edge is flat: it only shows the corner before it, so one place stays free
    assert detector.book[0]["size"][side] == capacity - 1


@given(segments, st.integers(0, 2**32))
@settings(max_examples=60 if COMPILED else 20)
def test_no_path_outgrows_the_hull_capacity(parts: list[tuple[int, float]], seed: int) -> None:
    rates = np.repeat([p for _, p in parts], [n for n, _ in parts])[:400]
    outcomes = bernoulli(np.random.default_rng(seed), rates)
    detector = Glr(delta=1e-12).start(1)
    room = _hull_capacity(len(outcomes))
    detector = detector._replace(hull=np.zeros((1, 2, room), glr._VERTEX))
    for outcome in outcomes:  # plain Python: an index out of bounds would raise
        push(detector, 0, int(outcome))
        assert (detector.book[0]["size"] <= _hull_capacity(int(detector.book[0]["count"]))).all()


def test_hulls_are_those_of_the_path() -> None:
    rng = np.random.default_rng(25)
    for rate in (0.1, 0.5, 0.8):
        outcomes = bernoulli(rng, np.full(150, rate))
        detector = Glr(delta=1e-12).start(1)
        feed(detector, outcomes, plain=True)
        sums = np.concatenate(([0], np.cumsum(outcomes)))
        corners = [s for s in range(1, 150) if outcomes[s - 1] != outcomes[s]]
        for side, sign in ((0, 1), (1, -1)):
            mine = [s for s in corners if outcomes[s] == side]
            last = mine[-1]
            # vertices: corners strictly beyond every chord from a point before to a corner after
            expected = [
                s
                for s in mine
                if s == last
                or all(
                    sign * ((sums[s] - sums[a]) * (b - s) - (sums[b] - sums[s]) * (s - a)) > 0
                    for a in range(s)
                    for b in mine
                    if b > s
                )
            ]
            size = detector.book[0]["size"][side]
            kept = detector.hull[0, side, :size]
            assert kept["s"].tolist() == expected
            assert kept["ones"].tolist() == sums[expected].tolist()


def test_reserve_keeps_the_state_and_the_decisions() -> None:
    rng = np.random.default_rng(26)
    outcomes = bernoulli(rng, np.repeat((0.6, 0.3), 700))
    at_once = reserve(Glr(delta=0.01).start(1), 1400)
    expected = feed(at_once, outcomes)
    state = Glr(delta=0.01).start(1)
    parts = []
    for block in np.split(outcomes, [3, 200, 256, 700, 1024]):
        before = state
        state = reserve(state, len(block))
        room = before.hull.shape[2]
        np.testing.assert_array_equal(state.book, before.book)
        np.testing.assert_array_equal(state.hull[:, :, :room], before.hull)
        np.testing.assert_array_equal(state.table[: len(before.table)], before.table)
        parts.append(feed(state, block))
        seen = int(state.book[0]["count"])
        assert state.hull.shape[2] >= _hull_capacity(seen)
        assert len(state.table) > seen
    for name in Alarms._fields:
        together = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_array_equal(together, getattr(expected, name))
    assert expected.alarm.any()
    assert reserve(state, 0).hull.shape == state.hull.shape


def test_room_is_enough_for_every_channel_and_small() -> None:
    state = reserve(Glr().start(3), 100_000)
    assert state.hull.shape[0] == 3
    assert _hull_capacity(100_000) <= state.hull.shape[2] < 0.9 * (2 * 131_072) ** (2 / 3)
    for n in (10**3, 10**4, 10**5, 10**6):
        assert _hull_capacity(n) == pytest.approx(0.88 * n ** (2 / 3), rel=0.05)
