"""Theorem 3: its condition, its counterexample, and what holds instead (E12, T19)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from freshband.aoi import ages_of
from freshband.channels import Table
from freshband.errors import ParameterError
from freshband.simulation import simulate
from freshband.theory import any_policy_regret, m_exp3_bound, missed_needle_regret, n_super_arms
from tests.theory.margins import needs_compiler


def test_condition_is_false_in_the_papers_own_setting() -> None:
    bound = m_exp3_bound(2, 5, 20_000, "literal")
    assert not bound.holds
    assert bound.failing == ["rounds > 16 (e-1) C^3 ln C"]
    assert m_exp3_bound(2, 5, [63_303, 63_304], "literal").holds.tolist() == [False, True]
    assert m_exp3_bound(4, 6, [251_272, 251_273], "literal").holds.tolist() == [False, True]
    assert float(bound.value) == pytest.approx(7.1e5, rel=0.01)
    assert m_exp3_bound(2, 5, 10**6, "literal", best=0.05).failing == [
        "successes of the best >= rounds / C"
    ]


def test_number_of_super_arms() -> None:
    for n in range(1, 25):
        for m in range(1, n + 1):
            assert float(n_super_arms(m, n)) == math.comb(n, m)


def needle(rounds: int, lucky: int) -> Any:
    states = np.zeros((rounds, 2), np.int8)
    states[: rounds // 2] = 1
    states[3 * rounds // 4 - 1, lucky] = 1
    return states


@pytest.mark.parametrize("policy", ["random", "m-exp3:paper", "m-exp3", "glr-cucb"])
def test_no_policy_finds_the_needle_more_often_than_a_coin(policy: str) -> None:
    """Until then both airs look alike, so whatever a policy does it misses one of the two."""
    rounds = 400
    regrets = []
    for lucky in (0, 1):
        result = simulate(
            Table(states=needle(rounds, lucky)), policy, clients=1, rounds=rounds, runs=3, seed=5,
            points=1, threads=1, progress=False,
        )  # fmt: skip
        regrets.append(result.regret_fixed.values[0])
    mean = np.mean(regrets, axis=0)
    assert (mean >= float(missed_needle_regret(rounds))).all()
    # the conditions of the theorem are met, and its bound is far below
    literal = m_exp3_bound(1, 2, rounds, "literal", best=(rounds / 2 + 1) / rounds)
    assert literal.holds
    assert float(literal.value) < mean.min() / 5


def test_rounds_over_successes_are_no_age() -> None:
    """(20): Good in the first half and Bad in the second has T/G = 2 and mean age 126.25."""
    delivered = np.repeat([1, 0], 500)[:, None]
    assert 1000 / delivered.sum() == 2
    assert ages_of(delivered).mean() == 126.25


def test_corrected_values() -> None:
    spread = math.sqrt((math.e - 1) * 20_000 * 10 * math.log(10))
    value = float(m_exp3_bound(2, 5, 20_000, worst=0.4, best=0.8).value)
    assert value == pytest.approx((20 * 4 * spread + 2 / 0.4) / 0.8)
    # and is honest about being of little use: nobody can do that badly
    assert value > float(any_policy_regret(2, 20_000, 0.4, 0.8))
    long = m_exp3_bound(2, 5, 10**8, worst=0.4, best=0.8).value
    assert float(long) < 0.3 * float(any_policy_regret(2, 10**8, 0.4, 0.8))


@pytest.mark.slow
@needs_compiler
def test_corrected_bound_against_the_simulator() -> None:
    means, rounds = [0.9, 0.8, 0.5, 0.45, 0.4], 20_000
    result = simulate(
        "stationary", ["m-exp3+random", "oracle:mean+random"], clients=2, rounds=rounds, runs=6,
        seed=3, points=1, threads=1, progress=False, channel_options={"means": means},
    )  # fmt: skip
    ages = result.mean_age.mean("run") * 2 * rounds
    regret = float(ages.sel(policy="m-exp3+random") - ages.sel(policy="oracle:mean+random"))
    assert 0 < regret <= float(m_exp3_bound(2, 5, rounds, worst=0.4, best=0.85).value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: m_exp3_bound(2, 5, 100), "worst and best must be given"),
        (lambda: m_exp3_bound(2, 5, 100, worst=0.5, best=0.4), "worst must be at most best = 0.4"),
        (lambda: m_exp3_bound(6, 5, 100, "literal"), "n_clients must be at most n_channels = 5"),
        (lambda: missed_needle_regret(6), "rounds must be divisible by 4"),
    ],
)
def test_bad_input(call: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        call()
