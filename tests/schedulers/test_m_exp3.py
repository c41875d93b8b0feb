"""M-Exp3 without listing super-arms against Algorithm 1 with all of them listed."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations
from typing import Any

import numba
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from freshband._policy import parse_policy
from freshband.errors import ParameterError
from freshband.schedulers import m_exp3
from freshband.schedulers.base import select
from freshband.schedulers.m_exp3 import MExp3
from freshband.states import _arrays, reserve
from tests.channels.margins import assert_share
from tests.reference.m_exp3 import DenseMExp3
from tests.schedulers.stepping import Game, LongRun

FIVE_SIGMA = 2.87e-7  # upper tail of a normal law


def weights(state: Any, n_channels: int, n_clients: int) -> dict[tuple[int, ...], float]:
    """ln w_I of every super-arm, from what the state holds of the played ones."""
    base = float(state.level[0]["base"])
    known = {
        tuple(state.members[i].tolist()): float(state.excess[i])
        for i in range(int(state.mark[0]["played"]))
    }
    return {
        arm: float(np.logaddexp(base, known.get(arm, -math.inf)))
        for arm in combinations(range(n_channels), n_clients)
    }


def rates(n_channels: int) -> NDArray[np.float64]:
    return np.linspace(0.9, 0.1, n_channels)


def anytime_gamma(n_arms: int) -> Any:
    return lambda t: min(1.0, math.sqrt(n_arms * math.log(n_arms) / ((math.e - 1) * t)))


RULES: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "paper": ({"gamma": "paper"}, lambda c: lambda t: 0.5, lambda t: 0.0),
    "number": ({"gamma": 0.07}, lambda c: lambda t: 0.07, lambda t: 0.0),
    "auto": (
        {"gamma": "auto"},
        lambda c: lambda t: min(1.0, math.sqrt(c * math.log(c) / ((math.e - 1) * 500))),
        lambda t: 0.0,
    ),
    "anytime": ({"gamma": "anytime"}, anytime_gamma, lambda t: 0.0),
    "shared": ({"gamma": 0.1, "share": 0.01}, lambda c: lambda t: 0.1, lambda t: 0.01),
    "shared a lot": ({"gamma": 0.2, "share": 1.0}, lambda c: lambda t: 0.2, lambda t: 1.0),
    "shared auto": ({"gamma": 0.1, "share": "auto"}, lambda c: lambda t: 0.1, lambda t: 1 / 500),
    "default": ({"gamma": "anytime", "share": "anytime"}, anytime_gamma, lambda t: 1 / t),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("scale", ["M", "none"])
@pytest.mark.parametrize(("n_channels", "n_clients"), [(5, 2), (6, 3), (3, 1), (4, 3), (3, 3)])
def test_same_distribution_as_with_all_super_arms_listed(
    rule: str, scale: str, n_channels: int, n_clients: int
) -> None:
    options, gamma, share = RULES[rule]
    n_arms = math.comb(n_channels, n_clients)
    rounds = 200
    settings = {"share": 0.0, "reward_scale": scale, **options}
    game = Game("m-exp3+rotate", n_clients, n_channels, horizon=500, seed=1, **settings)
    dense = DenseMExp3(
        n_clients, n_channels, gamma(n_arms), share, n_clients if scale == "M" else 1.0
    )
    air = np.random.default_rng(2)
    for t in range(1, rounds + 1):
        law = dense.distribution(t)
        assert law.sum() == pytest.approx(1)
        plan = game.plan()
        state = game.scheduler
        assert state.chance[0] == pytest.approx(law[dense.position(plan)], rel=1e-9), t
        if t % 10 == 0:
            known = weights(state, n_channels, n_clients)
            top = max(known.values())
            for arm, log_weight in zip(dense.arms, dense.log_weights, strict=True):
                if log_weight > dense.log_weights.max() - 500:
                    got = known[arm] - top
                    assert got == pytest.approx(log_weight - dense.log_weights.max(), abs=1e-8)
        states = air.random(n_channels) < rates(n_channels)
        outcome = states[plan].astype(np.int8)
        dense.learn(t, plan, float(outcome.sum()))
        game.observe(outcome)


def learnt(n_channels: int, n_clients: int, rounds: int, **options: Any) -> tuple[Game, Any]:
    """Play a while; return the game and the log-weights it then has."""
    game = Game("m-exp3+rotate", n_clients, n_channels, horizon=rounds, seed=4, **options)
    air = np.random.default_rng(5)
    for _ in range(rounds):
        game.play(air.random(n_channels) < rates(n_channels))
    return game, weights(game.scheduler, n_channels, n_clients)


def assert_draws_follow(game: Game, law: dict[tuple[int, ...], float], draws: int) -> None:
    """Chi-square at five sigma, rare super-arms taken together."""
    chosen = np.zeros(len(next(iter(law))), np.int64)
    seen: Counter[tuple[int, ...]] = Counter()
    for _ in range(draws):
        select(game.scheduler, game.t + 1, game.desk.ages, game.rng, chosen)
        arm = tuple(sorted(chosen.tolist()))
        assert game.scheduler.chance[0] == pytest.approx(law[arm], rel=1e-9)
        seen[arm] += 1
    often = [arm for arm, p in law.items() if p * draws >= 10]
    observed = [seen[arm] for arm in often]
    expected = [law[arm] * draws for arm in often]
    if len(often) < len(law):
        observed.append(draws - sum(observed))
        expected.append(draws - sum(expected))
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    assert len(often) > 3
    assert statistic <= chi2.isf(FIVE_SIGMA, len(observed) - 1)


@pytest.mark.parametrize(
    "options",
    [
        {"gamma": 0.3, "share": 0.0, "reward_scale": "none"},
        {"gamma": 0.15, "share": 0.002},
        {"gamma": "anytime", "share": "anytime"},
    ],
)
def test_draws_follow_the_distribution_after_learning(options: dict[str, Any]) -> None:
    game, log_weights = learnt(6, 3, 900, **options)
    gamma = options["gamma"] if options["gamma"] != "anytime" else anytime_gamma(20)(901)
    top = max(log_weights.values())
    total = sum(math.exp(w - top) for w in log_weights.values())
    law = {
        arm: (1 - gamma) * math.exp(w - top) / total + gamma / 20 for arm, w in log_weights.items()
    }
    assert max(law.values()) > 1.5 * min(law.values())  # it has learnt something
    assert_draws_follow(game, law, 15_000)


def test_draws_are_uniform_before_anything_is_learnt() -> None:
    game = Game("m-exp3", 2, 6, seed=6)
    assert_draws_follow(game, {arm: 1 / 15 for arm in combinations(range(6), 2)}, 5000)


def test_where_super_arms_cannot_be_listed() -> None:
    """N = 30, M = 20: 30,045,015 of them, of which only the rewarded ones are remembered."""
    game = Game("m-exp3", 20, 30, horizon=100, seed=7)
    air = np.random.default_rng(8)
    for _ in range(2000):
        if game.t % 100 == 0:
            game.scheduler = reserve(game.scheduler, 100)
        plan = game.plan()
        assert len(set(plan)) == 20
        assert 0 <= min(plan) <= max(plan) < 30
        assert 0 < game.scheduler.chance[0] <= 1
        game.observe((air.random(30) < 0.5)[plan])
    played = int(game.scheduler.mark[0]["played"])
    members = {tuple(row) for row in game.scheduler.members[:played].tolist()}
    assert len(members) == played  # each once
    assert 1900 < played <= 2000
    assert all(list(arm) == sorted(arm) for arm in members)


def test_a_super_arm_that_comes_back_among_millions_is_recognised() -> None:
    n_arms = math.comb(30, 20)
    game = Game("m-exp3", 20, 30, horizon=200, seed=9, gamma=0.01, share=0.0)
    for _ in range(60):
        game.play(np.ones(30, np.int8))
    state = game.scheduler
    state.excess[7] = math.log(9 * n_arms)  # as if it had been rewarded ever again
    m_exp3._rebuild_tree(state)
    others = sum(math.exp(state.excess[i]) for i in range(60) if i != 7)
    total = n_arms + 9 * n_arms + others
    chance = 0.99 * (1 + 9 * n_arms) / total + 0.01 / n_arms
    assert chance == pytest.approx(0.99 * 0.9, abs=1e-4)
    chosen = np.zeros(20, np.int64)
    back = 0
    for _ in range(2000):
        select(state, 61, game.desk.ages, game.rng, chosen)
        if sorted(chosen.tolist()) == state.members[7].tolist():
            back += 1
            assert state.mark[0]["drawn"] == 7
            assert state.chance[0] == pytest.approx(chance, rel=1e-12)
        else:
            assert state.chance[0] < 1e-6
    assert_share(back, 2000, chance)


# ---------------------------------------------------------------------------------- room to grow


def played_in_blocks(block: int) -> tuple[list[list[int]], list[float]]:
    """Plans and their probabilities when room is made every ``block`` rounds."""
    air = (np.random.default_rng(10).random((400, 12)) < 0.6).astype(np.int8)
    game = Game("m-exp3", 4, 12, horizon=1, seed=11, gamma=0.05)
    plans, chances = [], []
    for t in range(400):
        if t % block == 0:
            game.scheduler = reserve(game.scheduler, block)
        plans.append(game.plan())
        chances.append(float(game.scheduler.chance[0]))
        game.observe(air[t, plans[-1]])
    assert game.scheduler.mark[0]["played"] > 64  # it did outgrow the first room
    return plans, chances


def test_growing_changes_no_bit() -> None:
    assert played_in_blocks(400) == played_in_blocks(16)


def test_growing_keeps_what_was_learnt() -> None:
    game, before = learnt(9, 4, 100, gamma=0.1)
    held = game.scheduler
    grown = reserve(held, 500)
    assert len(grown.excess) > len(held.excess)
    assert weights(grown, 9, 4) == before
    for name, array in _arrays(held.counts):
        np.testing.assert_array_equal(array, dict(_arrays(grown.counts))[name])
    assert reserve(grown, 0) is grown


# --------------------------------------------------------------------------- what is not learnt


def frozen(state: Any) -> dict[str, NDArray[Any]]:
    return {name: array.copy() for name, array in _arrays(state)}


def assert_only_means_moved(before: dict[str, NDArray[Any]], state: Any) -> None:
    moved = {
        name for name, array in _arrays(state) if not np.array_equal(before[name], array)
    }  # mean and width go with pulls and wins
    assert moved
    assert moved <= {"counts.pulls", "counts.wins", "counts.mean", "counts.width"}


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_an_unknown_outcome_skips_the_round_but_not_the_known_means(share: float) -> None:
    game = Game("m-exp3", 3, 5, seed=12, gamma=0.2, share=share, discount=None)
    for _ in range(20):
        game.play([1, 1, 0, 1, 0])
    plan = game.plan()
    before = frozen(game.scheduler)
    game.observe([1, -1, 1])
    assert_only_means_moved(before, game.scheduler)
    pulls = game.scheduler.counts.pulls - before["counts.pulls"]
    assert [k for k in range(5) if pulls[k] == 1] == sorted((plan[0], plan[2]))
    assert pulls.sum() == 2


def test_an_overridden_round_is_skipped_by_default() -> None:
    """Its set was not drawn with the probability of the one drawn: erratum E16."""
    game = Game("m-exp3+aa", 2, 5, seed=13, gamma=0.2, discount=None)
    skipped = learnt_from = 0
    rng = np.random.default_rng(0)
    for _ in range(60):
        game.plan()
        before = frozen(game.scheduler.inner)
        jumped = game.desk.overridden.any()
        game.observe(rng.integers(0, 2, 2))
        if jumped:
            skipped += 1
            assert_only_means_moved(before, game.scheduler.inner)
        elif game.desk.outcome.any():
            learnt_from += 1
            assert not np.array_equal(before["excess"], game.scheduler.inner.excess)
    assert skipped > 5
    assert learnt_from > 5


def test_propensity_learns_the_set_played_with_certainty() -> None:
    options = {"gamma": 0.2, "share": 0.05, "aa_update": "propensity", "discount": None}
    game = Game("m-exp3+aa-sum", 2, 5, seed=14, **options)
    dense = DenseMExp3(2, 5, lambda t: 0.2, lambda t: 0.05, 2.0)
    rng = np.random.default_rng(1)
    jumped = 0
    for t in range(1, 120):
        plan = game.plan()
        acted = bool(game.desk.overridden.any())
        assert game.desk.overridden.all() == acted
        jumped += acted
        outcome = (rng.random(5) < rates(5))[plan]
        dense.learn(t, plan, float(outcome.sum()), chance=1.0 if acted else None)
        game.observe(outcome)
        known = weights(game.scheduler.inner, 5, 2)
        top, dense_top = max(known.values()), dense.log_weights.max()
        for arm, log_weight in zip(dense.arms, dense.log_weights, strict=True):
            assert known[arm] - top == pytest.approx(log_weight - dense_top, abs=1e-8)
    assert 5 < jumped < 115


def test_propensity_is_refused_where_it_is_not_known() -> None:
    with pytest.raises(ParameterError, match="aa_update='propensity' is exact with"):
        parse_policy("m-exp3+aa", {"aa_update": "propensity"})
    assert parse_policy("m-exp3+aa-sum", {"aa_update": "propensity"}).aware == "sum"


# ------------------------------------------------------------------------------------ parameters


def test_tuned_gamma_is_auers() -> None:
    rng, auto = np.random.default_rng(0), MExp3(gamma="auto")
    few, many = auto.start(2, 5, rng, 80_000), auto.start(20, 30, rng, 20_000)
    assert few.rate[0]["gamma"] == pytest.approx(0.0129, abs=5e-5)  # of 10 sets
    assert many.rate[0]["gamma"] == 1.0


def test_settings_that_need_the_horizon_ask_for_it() -> None:
    for options in ({"gamma": "auto"}, {"share": "auto"}):
        with pytest.raises(ParameterError, match=r"m-exp3 with .*='auto' needs"):
            MExp3(**options).start(2, 5, np.random.default_rng(0), None)
    MExp3().start(2, 5, np.random.default_rng(0), None)


@pytest.mark.parametrize(
    ("name", "value"),
    [("gamma", 0), ("gamma", 1.5), ("gamma", math.nan), ("gamma", "papre"), ("gamma", True),
     ("share", -0.1), ("share", 2), ("share", "x"), ("reward_scale", "m"), ("aa_update", "keep"),
     ("mean_window", 0), ("discount", 1.0), ("discount", 0.0)],
)  # fmt: skip
def test_parameters_out_of_range_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ParameterError, match=f"{name} must be"):
        MExp3(**{name: value})


# -------------------------------------------------------------------------- T9: a million rounds


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="millions of rounds need the compiler")
def test_a_million_rounds_neither_overflow_nor_lose_a_weight() -> None:
    """Weights as printed pass 1e308 after a few thousand rounds; logarithms stay exact.

    Estimates are unbiased, so ln w_I grows by γ (mu_a + mu_b) / C a round, and their variance a
    round is at most X^2/p <= 4 C/γ = 80: five standard deviations after T rounds are
    5 (γ/C) sqrt(80 T).
    """
    run = LongRun("m-exp3:paper", 10**6, 15)
    means = np.array([0.9, 0.8, 0.5, 0.4, 0.3])
    last = run.play(means, 10**6)[-200_000:]
    known = weights(run.state, 5, 2)
    rate = 0.5 / 10
    for arm, log_weight in known.items():
        expected = rate * 10**6 * means[list(arm)].sum()
        assert log_weight == pytest.approx(expected, abs=5 * rate * math.sqrt(80 * 10**6))
    assert max(known.values()) > 50_000  # e^50,000 is far beyond any float
    for name, array in _arrays(run.state):
        if name != "excess":
            numbers = array.view(np.float64) if array.dtype.names else array
            assert not np.isnan(numbers).any(), name
    assert np.isfinite(run.state.excess[: run.state.mark[0]["played"]]).all()
    assert np.isfinite(run.state.tree).all()
    # half the rounds are uniform for ever (erratum E12a): the best set gets .5 + .5/10
    assert np.mean((np.sort(last, axis=1) == (0, 1)).all(axis=1)) == pytest.approx(0.55, abs=0.006)

    last = run.play(means[::-1], 1_500_000)[-100_000:]  # now the last two are the good ones
    for arm, log_weight in weights(run.state, 5, 2).items():
        expected = rate * (10**6 * means[list(arm)].sum() + 1.5e6 * means[::-1][list(arm)].sum())
        assert log_weight == pytest.approx(expected, abs=5 * rate * math.sqrt(80 * 2.5e6))
    follows = np.mean((np.sort(last, axis=1) == (3, 4)).all(axis=1))
    assert follows == pytest.approx(0.55, abs=0.01)


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="many rounds need the compiler")
def test_sharing_follows_a_change_long_after() -> None:
    shares = {}
    for share in ("anytime", 0.0):
        run = LongRun("m-exp3+rotate", 10**6, 16, share=share)
        means = np.array([0.9, 0.8, 0.3, 0.2, 0.1])
        run.play(means, 200_000)
        last = run.play(means[::-1], 50_000)[-10_000:]
        shares[share] = np.mean((np.sort(last, axis=1) == (3, 4)).all(axis=1))
        assert np.isfinite(run.state.tree).all()
    assert shares["anytime"] > 0.8
    assert shares[0.0] < 0.1
