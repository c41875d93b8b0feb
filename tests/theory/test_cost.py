"""The cost law is exact, whatever the policy: by enumerating all that can happen."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshband.aoi import ages_of
from freshband.errors import ParameterError
from freshband.simulation import simulate
from freshband.theory import (
    age_cutoff,
    ahead_weight,
    any_policy_regret,
    constant_age,
    expected_age,
    regret_terms,
)
from tests.theory.margins import assert_mean, needs_compiler, standard_error

Choice = Callable[[int, list[int]], int]  # the channel of a round, from all outcomes before it


def by_enumeration(means: Any, best: Any, choose: Choice) -> tuple[float, float]:
    """Regret of one client, as the difference of expected ages and by the law."""
    rounds = len(means)
    difference = law = 0.0
    for outcomes in itertools.product([0, 1], repeat=rounds):
        used = [means[t][choose(t, list(outcomes[:t]))] for t in range(rounds)]
        chance = math.prod(m if x else 1 - m for m, x in zip(used, outcomes, strict=True))
        history = np.array(outcomes)[:, None]
        difference += chance * ages_of(history).sum()
        law += chance * regret_terms(best, used, ages_of(history, "pre").ravel()).sum()
    return float(difference - expected_age(best).sum()), float(law)


@given(st.integers(0, 2**32 - 1), st.integers(1, 7))
def test_regret_is_the_sum_of_its_terms(seed: int, rounds: int) -> None:
    rng = np.random.default_rng(seed)
    means = rng.random((rounds, 3))
    best = rng.random(rounds)  # any benchmark, better or worse than the policy
    table = rng.integers(0, 3, 2 ** (rounds + 1))  # any function of the history

    def choose(t: int, past: list[int]) -> int:
        return int(table[(1 << t) + sum(x << i for i, x in enumerate(past))])

    difference, law = by_enumeration(means, best, choose)
    assert law == pytest.approx(difference, abs=1e-10)


def explore_when_fresh(t: int, past: list[int]) -> int:
    """The wrong channel, 1, only in rounds that begin at age 1: the cheapest exploration."""
    return 1 if not past or past[-1] == 1 else 0


def test_cheapest_exploration_costs_exactly_what_theorem_2_charges() -> None:
    """(61) is tight there: one wrong round costs ε/p, neither more nor less."""
    p, gap, rounds = 0.6, 0.1, 12
    regret, _ = by_enumeration([(p, p - gap)] * rounds, [p] * rounds, explore_when_fresh)
    wrong = np.zeros(rounds)
    for outcomes in itertools.product([0, 1], repeat=rounds):
        choices = [explore_when_fresh(t, list(outcomes[:t])) for t in range(rounds)]
        used = [(p, p - gap)[k] for k in choices]
        wrong += np.array(choices) * math.prod(
            m if x else 1 - m for m, x in zip(used, outcomes, strict=True)
        )
    weight = (1 - (1 - p) ** np.arange(rounds, 0, -1)) / p
    assert regret == pytest.approx(gap * wrong @ weight, rel=1e-12)
    least = gap / p * (wrong.sum() - (1 - p) / p)  # with what the end of the run takes off
    assert least <= regret <= gap / p * wrong.sum()
    assert 1.1 * least > regret  # a tenth more, and it is no lower bound any longer


def test_ages_and_choices_need_not_be_independent() -> None:
    """(61) takes E[a* 1{wrong}] for E[a*] P(wrong); exploring when fresh it is much less."""
    p, gap, rounds = 0.6, 0.1, 10
    joint = apart = 0.0
    for outcomes in itertools.product([0, 1], repeat=rounds):
        choices = [explore_when_fresh(t, list(outcomes[:t])) for t in range(rounds)]
        used = [(p, p - gap)[k] for k in choices]
        chance = math.prod(m if x else 1 - m for m, x in zip(used, outcomes, strict=True))
        # coupled: where the policy fails on the worse channel, the oracle still may succeed
        oracle = 1.0
        for t in range(rounds):
            joint += chance * oracle * choices[t]
            apart += chance * choices[t] * float(constant_age(p, t))
            if outcomes[t]:
                oracle = 1.0
            else:
                rescue = gap / (1 - p + gap) if choices[t] else 0.0
                oracle = rescue + (1 - rescue) * (oracle + 1)
    assert joint < 0.75 * apart


@needs_compiler
def test_the_law_agrees_with_the_simulator() -> None:
    """Random scheduling of one client on two channels, against the better one."""
    rounds, means = 2000, (0.8, 0.3)
    result = simulate(
        "stationary", "random", clients=1, rounds=rounds, runs=300, seed=7, points=1, threads=1,
        progress=False, channel_options={"means": means},
    )  # fmt: skip
    ages = np.concatenate([[1.0], expected_age([0.55] * rounds)[:-1]])
    expected = regret_terms([0.8] * rounds, [0.55] * rounds, ages).sum()
    assert_mean(result.regret.values[0], float(expected))
    assert 20 * standard_error(result.regret.values[0]) < expected


def test_weights_ahead() -> None:
    means = np.random.default_rng(0).random((6, 2, 3))
    weights = ahead_weight(means)
    for t in range(6):
        sums = sum(np.prod(1 - means[t + 1 : t + 1 + m], axis=0) for m in range(6 - t))
        np.testing.assert_allclose(weights[t], sums)
    assert float(ahead_weight([0.25] * 200)[0]) == pytest.approx(4)


@pytest.mark.parametrize("worst", [0.05, 0.3, 0.9, 1.0])
def test_ages_beyond_the_cutoff_are_worth_one_round(worst: float) -> None:
    rounds = 500
    n = int(age_cutoff(rounds, worst))
    beyond = rounds * (1 - worst) ** n / worst  # Σ_t E[(a - n)^+] when always on the worst
    assert beyond <= 1 / worst
    if n > 1:
        assert rounds * (1 - worst) ** (n - 1) / worst > 1 / worst  # one less would not do


def test_no_policy_is_worse_than_the_worst_channel() -> None:
    t = np.arange(1, 301)
    expected = 3 * (constant_age(0.2, t) - constant_age(0.7, t)).sum()
    assert float(any_policy_regret(3, 300, 0.2, 0.7)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ahead_weight(0.5), "best_means must have the shape"),
        (lambda: regret_terms([0.5], [1.5], [1]), r"means must be numbers in \[0, 1\]"),
        (lambda: regret_terms([0.5], [0.5], [-1]), "ages_before must be finite numbers >= 0"),
        (lambda: age_cutoff(0, 0.5), "rounds must be whole numbers >= 1"),
        (lambda: age_cutoff(5, 0), r"worst must be numbers in \(0, 1\]"),
    ],
)
def test_bad_input(call: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        call()
