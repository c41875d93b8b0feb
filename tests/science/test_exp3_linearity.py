"""M-Exp3 with γ = 0.5 has linear regret for ever; the tuned γ has not (erratum E12, T9).

Once the weights have settled on the best set, each round is uniform with probability γ. A client
in turn then delivers with the better, or the worse, channel of the set that was drawn, so the
rate of regret follows from `rotation_age` and has no free constant.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from freshband.simulation import simulate
from freshband.theory import constant_age, rotation_age
from tests.theory.margins import assert_mean, needs_compiler, standard_error

pytestmark = needs_compiler

MEANS = [0.9, 0.8, 0.5, 0.4, 0.3]
ROUNDS = 80_000
TUNED = {"gamma": "auto", "share": 0.0, "discount": None}


def settled_rate(gamma: float) -> float:
    """Regret per round against mean+rotate when all weight is on the best pair."""
    pairs = list(itertools.combinations(MEANS, 2))
    better = (1 - gamma) * 0.9 + gamma * np.mean([max(pair) for pair in pairs])
    worse = (1 - gamma) * 0.8 + gamma * np.mean([min(pair) for pair in pairs])
    return 2 * float(rotation_age([better, worse]) - rotation_age([0.9, 0.8]))


def play(policies: list[str], rounds: int, runs: int, **options: Any) -> Any:
    """Regret per round against mean+rotate, quarter by quarter."""
    result = simulate(
        "stationary", policies, clients=2, rounds=rounds, runs=runs, seed=0, points=4, threads=1,
        progress=False, channel_options={"means": MEANS}, **options,
    )  # fmt: skip
    curve = result.regret_rotate_curve
    first = curve.isel(round=[0])
    steps = curve.diff("round")
    return np.concatenate([first.values, steps.values], axis=-1) * (4 / rounds)


def test_constant_gamma_is_linear_and_tuned_gamma_is_not() -> None:
    policies = ["random", "m-exp3:paper", "m-exp3+rotate"]
    by_lot, paper, tuned = play(
        policies, ROUNDS, 20, policy_options={"m-exp3+rotate": TUNED}
    )  # each (run, quarter)
    mean = float(np.mean(MEANS))
    rate_by_lot = 2 * float(constant_age(mean) - rotation_age([0.9, 0.8]))  # 1.101
    rate = settled_rate(0.5)  # 0.417
    assert_mean(by_lot[:, 2:].mean(axis=1), rate_by_lot)
    assert_mean(paper[:, 2], rate)
    assert_mean(paper[:, 3], rate)
    assert_mean(paper[:, 3] - paper[:, 2], 0)
    assert standard_error(paper[:, 3] - paper[:, 2]) < 0.01 * rate  # so a slow-down would show
    # a prototype measured .416 and .414 a round, random 1.098
    assert abs(paper[:, 2:].mean() - 0.415) < 0.01
    assert abs(by_lot.mean() - 1.098) < 0.01

    assert tuned[:, 0].mean() > 20 * tuned[:, 3].mean()
    assert tuned[:, 3].mean() < 0.04 * paper[:, 3].mean()
    assert tuned[:, 3].mean() < 1.25 * settled_rate(0.0129)
    # prototype: 5588 after the first quarter, 6275 in the end
    at_first, in_the_end = tuned[:, 0] * ROUNDS / 4, tuned.sum(axis=1) * ROUNDS / 4
    assert abs(at_first.mean() - 5588) < 5 * np.sqrt(2) * standard_error(at_first)
    assert abs(in_the_end.mean() - 6275) < 5 * np.sqrt(2) * standard_error(in_the_end)


def test_a_million_rounds_do_not_overflow() -> None:
    rates = play(["m-exp3:paper"], 1_000_000, 2).reshape(2, 4)
    assert np.isfinite(rates).all()
    assert_mean(rates.ravel()[[1, 2, 3, 5, 6, 7]], settled_rate(0.5))
