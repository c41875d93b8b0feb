"""The Bayes filter against Bayes' rule, and what it finds out about the air."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from freshband import Coordinator
from freshband._jit import entry_point
from freshband._lending import lend
from freshband.channels import open_air
from freshband.channels.base import build
from freshband.schedulers import bayes
from freshband.schedulers._bayes_channels import FORGET
from freshband.schedulers._bayes_state import SHARED_CONTEXT
from freshband.schedulers._segments import _IDLE
from freshband.schedulers.base import update
from freshband.schedulers.beliefs import explain
from tests.reference.switching import BeginningsInLogs, trusted
from tests.schedulers.pure_bayes import start_pure
from tests.schedulers.stepping import Game

CHANNELS = 3


def hear(state: Any, t: int, row: list[int], learn: Any = update) -> None:
    """Let a state hear 1, 0 or nothing (-1) of every channel."""
    heard = [channel for channel, outcome in enumerate(row) if outcome >= 0]
    assignment = np.full(len(row), -1, np.int64)
    assignment[: len(heard)] = heard
    outcome = np.full(len(row), -1, np.int8)
    outcome[: len(heard)] = [row[channel] for channel in heard]
    learn(state, t, assignment, outcome, np.zeros(len(row), np.int8))


@entry_point
def compiled_update(scheduler: Any, t: int, assignment: Any, outcome: Any, overridden: Any) -> int:
    return update(lend(scheduler), t, assignment, outcome, overridden)  # type: ignore[no-any-return]


def start(n_channels: int, **options: Any) -> Any:
    return bayes.Bayes(**options).start(n_channels, n_channels, np.random.default_rng(0), None)


def by_way(state: Any) -> Any:
    """Return the trust in the filters, (2, H)."""
    return state.trust.now[:SHARED_CONTEXT].reshape(2, -1)


def hazard(state: Any) -> float:
    """Return the expected hazard, as far as the filters are right."""
    trust = by_way(state).sum(axis=0)
    return float((trust * state.hazards).sum() / trust.sum())


def weights(segments: Any) -> Any:
    """Return the probabilities of the beginnings now, (G, H, K)."""
    weight = segments.weight * (segments.scale * segments.stay)[:, :, None]
    for group, fresh in enumerate(segments.fresh):
        weight[group, :, fresh] += 1.0 - segments.stay[group]
    return weight


Rows = st.lists(st.lists(st.integers(-1, 1), min_size=CHANNELS, max_size=CHANNELS), max_size=5)


@given(Rows)
@settings(max_examples=25)
def test_it_is_bayes_rule(rows: list[list[int]]) -> None:
    state = start_pure(CHANNELS, CHANNELS)
    for t, row in enumerate(rows, 1):
        hear(state, t, row)
    first, second, trust = trusted(
        rows,
        CHANNELS,
        state.hazards.tolist(),
        lambda t: FORGET / (t + 1),
        lambda t: _IDLE / (t + 1),
    )
    np.testing.assert_allclose(by_way(state), trust, rtol=1e-9)
    # Moments are averaged over the hazards when a channel is heard, not again when the trust moves.
    np.testing.assert_allclose(state.mean, first, atol=0.05)
    spread = [math.sqrt(s - m * m) for m, s in zip(first, second, strict=True)]
    np.testing.assert_allclose(state.spread, spread, atol=0.05)


@given(
    st.integers(2, 5),
    st.lists(st.lists(st.integers(-1, 1), min_size=CHANNELS, max_size=CHANNELS), max_size=30),
)
def test_giving_beginnings_up_leaves_probabilities(slots: int, rows: list[list[int]]) -> None:
    state = start(CHANNELS, slots=slots)
    for t, row in enumerate(rows, 1):
        hear(state, t, row)
        assert_probabilities(state)
        for segments in (state.alone, state.together):
            for group, fresh in enumerate(segments.fresh):
                size = CHANNELS // len(segments.fresh)
                assert not segments.tries[group * size : (group + 1) * size, fresh].any()


def test_few_beginnings_say_nearly_what_all_say() -> None:
    """Over 100 rounds with switches, the 16 likeliest are enough for two digits."""
    rng = np.random.default_rng(1)
    all_of_them, some = start(CHANNELS, slots=101), start(CHANNELS, slots=16)
    apart = []
    for t in range(1, 101):
        rates = np.roll([0.9, 0.5, 0.1], t // 34)
        row = (rng.random(CHANNELS) < rates).astype(int).tolist()
        hear(all_of_them, t, row)
        hear(some, t, row)
        apart.append(np.abs(all_of_them.mean - some.mean).max())
    assert 0 < max(apart) < 0.02


def assert_probabilities(state: Any) -> None:
    for segments in (state.alone, state.together):
        np.testing.assert_allclose(weights(segments).sum(axis=-1), 1.0, rtol=1e-9)
        assert (segments.weight >= 0).all()
    np.testing.assert_allclose(state.trust.now.sum(), 1.0, rtol=1e-9)
    np.testing.assert_allclose(state.priors.belief.sum(), 1.0, rtol=1e-9)
    np.testing.assert_allclose(state.periods.belief.sum(axis=1), 1.0, rtol=1e-9)
    assert ((state.mean > 0) & (state.mean < 1)).all()
    assert np.isfinite(state.spread).all()


@pytest.mark.parametrize("rounds", [3, 60])
@pytest.mark.parametrize("heard", [31, 32, 33, 1100, 2000])
def test_any_number_of_outcomes_is_bayes_rule(heard: int, rounds: int) -> None:
    """Likelihoods of thousands of outcomes leave the range of a double: 2^2000 and 60^-2000.

    Many rounds of success, then a part of the channels fails, then all of them: what is left of a
    beginning after the first thousand outcomes must not decide about the rest.
    """
    state = start_pure(heard, heard, slots=rounds + 4)
    most = heard * 7 // 8
    rows = [[1] * heard] * rounds + [[1] * most + [0] * (heard - most), [0] * heard]
    together = BeginningsInLogs(heard, state.hazards.tolist())
    for t, row in enumerate(rows, 1):
        hear(state, t, row, compiled_update)
        evidence = together.hear(row)
        odds = state.trust.odds[len(state.hazards) : SHARED_CONTEXT]
        found = odds > 0  # the others are 2^1000 times less likely
        expected = evidence - evidence[odds.argmax()]
        relative = np.log(odds[found] / odds.max())
        np.testing.assert_allclose(relative, expected[found], rtol=1e-9, atol=1e-9)
        assert_probabilities(state)
        np.testing.assert_allclose(
            weights(state.together)[0].max(axis=-1), together.largest_weights(), rtol=1e-6
        )


@given(
    st.integers(2, 6),
    st.lists(st.tuples(st.integers(0, 2100), st.integers(0, 2100), st.booleans()), max_size=6),
)
@example(slots=2, rounds=[(35, 0, False), (39, 506, False), (506, 0, True)])  # all vanish
@settings(max_examples=15, deadline=None)
def test_extreme_rounds_leave_probabilities(slots: int, rounds: list[Any]) -> None:
    state = start(2100, slots=slots)
    for t, (first, second, good) in enumerate(rounds, 1):
        row = [int(good)] * first + [int(not good)] * max(0, second - first)
        hear(state, t, row + [-1] * (2100 - len(row)), compiled_update)
        assert_probabilities(state)


@pytest.mark.parametrize("failing", [300, 500])
def test_failures_after_a_long_success_of_many_channels_leave_probabilities(failing: int) -> None:
    """The first version had only NaN from then on."""
    heard = 1600
    state = start(2000)
    for t in range(1, 611):
        good = heard if t <= 600 else heard - failing
        row = [1] * good + [0] * (heard - good) + [-1] * 400
        hear(state, t, row, compiled_update)
    assert_probabilities(state)
    assert state.mean[heard - failing : heard].max() < 0.2 < 0.9 < state.mean[:good].min()


@entry_point
def suffer(scheduler: Any, first: int, rounds: int, kind: int) -> None:
    """Hear all channels: always good, always bad, in turn, or ever what is least expected."""
    scheduler = lend(scheduler)
    n_channels = len(scheduler.mean)
    assignment, outcome = np.arange(n_channels), np.zeros(n_channels, np.int8)
    overridden = np.zeros(n_channels, np.int8)
    for t in range(first, first + rounds):
        for channel in range(n_channels):
            outcome[channel] = 1 - kind if kind < 2 else (t + channel) % 2
            if kind == 3:
                outcome[channel] = scheduler.mean[channel] < 0.5
        update(scheduler, t, assignment, outcome, overridden)


@pytest.mark.parametrize(("n_channels", "rounds"), [(3, 15_000), (2000, 50)])
def test_extreme_rounds_in_any_number_leave_probabilities(n_channels: int, rounds: int) -> None:
    """120,000 rounds of three channels, and then as many from round 10^7 on."""
    state, t = start(n_channels), 1
    for _ in range(2):
        for kind in (0, 1, 0, 2, 3, 1, 3, 0):
            suffer(state, t, rounds, kind)
            t += rounds
            assert_probabilities(state)
        t = 10_000_000


def test_a_filter_that_bet_all_on_what_is_given_up_still_has_probabilities() -> None:
    """The least likely beginning may hold all the weight under a hazard nobody trusts."""
    state = start(1, slots=2)
    state.trust.now[:] = 0.0
    state.trust.now[0] = 1.0
    state.alone.weight[0, 0] = [1.0, 0.0]
    state.alone.weight[0, 1:] = [0.0, 1.0]
    state.alone.tries[0] = [0.0, 5.0]
    hear(state, 1, [1])
    assert_probabilities(state)


def listen(channels: str, rounds: int, **options: Any) -> Any:
    """Hear every channel of an air in every round; return the state."""
    air = open_air(build(channels, options), rounds=rounds, seed=0)
    state = start(options["n_channels"])
    for t, row in enumerate(air.block(rounds).states.tolist(), 1):
        hear(state, t, row)
    return state


@pytest.mark.parametrize(
    ("channels", "options"),
    [("stationary", {}), ("switching", {"hazard": 0.01, "per_channel": True}),
     ("switching", {"hazard": 0.05})],
)  # fmt: skip
def test_channels_that_are_not_heard_are_averaged_over_hazards_well_enough(
    channels: str, options: Any
) -> None:
    """What filters say, from moments of when a channel was last heard, and from all weights."""
    air = open_air(build(channels, {"n_channels": 6, **options}), rounds=2000, seed=3)
    coordinator, apart = Coordinator("bayes", 2, 6, seed=3), []
    for t, row in enumerate(air.block(2000).states):
        coordinator.observe(row[coordinator.plan()] == 1)
        state = coordinator._scheduler
        trust, half = state.trust.now[:SHARED_CONTEXT], len(state.hazards)
        alone, together = trust[:half], trust[half:]
        exact = np.einsum("h,ghk,gk->g", alone, weights(state.alone), state.alone.rate)
        exact += np.einsum("h,hk,gk->g", together, weights(state.together)[0], state.together.rate)
        single, common = state.alone.stay @ alone, state.together.stay[0] @ together
        found = single * state.first[:, 0] + common * state.first[:, 1]
        found += (trust.sum() - single - common) * state.priors.pooled[0] / state.priors.pooled[1]
        if t % 5 == 0:
            apart.append(np.abs(found - exact).max() / trust.sum())
    assert max(apart) < 0.1
    assert np.quantile(apart, 0.99) < 0.05


def test_it_finds_out_whether_channels_switch_together() -> None:
    together = listen("piecewise", 400, n_channels=6, n_breakpoints=4)
    assert by_way(together)[1].sum() > 0.9
    alone = listen("switching", 400, n_channels=6, hazard=0.01, per_channel=True)
    assert by_way(alone)[0].sum() > 0.9


def test_it_finds_out_how_often() -> None:
    def expected(rate: float) -> float:
        return hazard(listen("switching", 400, n_channels=8, hazard=rate, per_channel=True))

    assert expected(0.0) < 0.001
    assert 0.02 < expected(0.05) < 0.09
    assert expected(0.2) > 0.14


def test_trust_comes_back_when_still_channels_begin_to_move() -> None:
    rng = np.random.default_rng(0)
    state = start(2)
    for t in range(1, 2001):
        hear(state, t, (rng.random(2) < (0.9, 0.1)).astype(int).tolist())
    calm = hazard(state)
    for t in range(2001, 2301):
        rates = (0.95, 0.05) if t // 10 % 2 else (0.05, 0.95)
        hear(state, t, (rng.random(2) < rates).astype(int).tolist())
    moved = hazard(state)
    assert calm < 0.002
    assert moved > 0.04


def test_unheard_channels_drift_back_to_ignorance() -> None:
    state = start(2)
    for t in range(1, 201):
        hear(state, t, [1, 0] if t <= 100 else [1, -1])
        if t == 100:
            known = float(state.mean[1])
    assert known < float(state.mean[1]) < 0.5


def test_it_says_what_it_believes() -> None:
    state = start(2)
    for t in range(1, 121):
        hear(state, t, [1, 1] if t <= 100 else [0, 1])
    told = explain(state)
    assert told is not None
    assert sum(told.models.values()) == pytest.approx(1.0)
    assert ((told.changed >= 0) & (told.changed <= 1)).all()
    assert 15 < told.segment_age[0] < 30 < told.segment_age[1]
    assert told.rate[0] < 0.2 < 0.8 < told.rate[1]
    assert explain(Game("cucb", 1, 2).scheduler) is None
    assert explain(Game("bayes+aa", 1, 2).scheduler) is not None


@pytest.mark.parametrize("clients", [2, 9])
def test_a_success_that_comes_late_ends_a_row_of_losses(clients: int) -> None:
    """Losses are known at once, successes a round later. Before, chance decided for ever."""
    coordinator = Coordinator("bayes", clients, 5, seed=1, max_transmissions=2)
    rng, rates = np.random.default_rng(2), np.array([0.9, 0.8, 0.2, 0.2, 0.2])
    good, before = 0, np.zeros(clients, np.bool_)
    for t in range(1, 801):
        plan = coordinator.plan()
        delivered = (plan >= 0) & (rng.random(clients) < rates[plan])
        good += t > 400 and int(np.isin(plan, (0, 1)).sum())
        coordinator.observe([None if got else False for got in delivered])
        if t > 1:
            coordinator.observe([True if got else None for got in before], round=t - 1)
        before = delivered
    assert good > 0.8 * 2 * 400


def test_one_client_that_is_never_heard_does_not_ruin_the_others() -> None:
    """Chance decides as long as it may help; before, it decided for everybody and for ever."""
    server = Coordinator("bayes", 3, 6, seed=1)
    rng, rates = np.random.default_rng(3), np.array([0.9, 0.85, 0.8, 0.2, 0.2, 0.2])
    by_chance, ages = [], []
    for t in range(1, 4001):
        plan = server.plan()
        by_chance.append(int(server._scheduler.chance[0]))
        server.observe((rng.random(3) < rates[plan]) & ((np.arange(3) > 0) | (t > 3500)))
        ages.append(float(server.ages[1:].mean()))
    began = by_chance.index(1)
    assert began < 60
    lasted = by_chance.index(0, began) - began
    assert 200 <= lasted <= 225  # 200 losses; meanwhile the limit grows
    seldom = by_chance[began + lasted : 3500]
    assert abs(np.mean(seldom) - 0.1) < 5 * math.sqrt(0.09 / len(seldom))
    assert sum(by_chance[3520:]) == 0  # it is heard again
    assert np.mean(ages[400:3500]) < 1.3 < 1.6 < np.mean(ages[began + 20 : began + 200])


def test_memory_is_linear_in_channels_and_constant_in_time() -> None:
    def size(state: Any) -> int:
        return sum(map(size, state)) if isinstance(state, tuple) else state.nbytes

    small, middle, large = (size(start(channels)) for channels in (100, 200, 300))
    assert small < 1_000_000
    assert large - middle == middle - small
    coordinator = Coordinator("bayes", 2, 100, seed=0)
    for _ in range(300):
        coordinator.observe(coordinator.plan() % 2 == 0)
    assert size(coordinator._scheduler) == size(bayes.Bayes().start(2, 100, None, None))


def test_more_optimism_explores_more() -> None:
    def tries(optimism: float) -> float:
        game = Game("bayes", 1, 4, optimism=optimism)
        rng = np.random.default_rng(5)
        for _ in range(150):
            game.play((rng.random(4) < (0.8, 0.4, 0.4, 0.4)).astype(int))
        return float(game.scheduler.alone.tries[1:].max(axis=1).sum())

    assert tries(1.5) < 60 < tries(6.0)
