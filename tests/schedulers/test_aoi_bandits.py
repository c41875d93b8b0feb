"""Q-UCB against its definition, and AoI-Thompson as the composition that it is."""

from __future__ import annotations

import math

import numpy as np
import pytest

from freshband import simulate
from freshband._policy import parse_policy
from freshband.errors import ParameterError
from freshband.schedulers.counts import keep
from freshband.schedulers.index import evaluate
from freshband.schedulers.q_ucb import QUcb


def test_q_ucb_is_mean_and_bonus_unless_it_explores() -> None:
    state = QUcb(exploration=0.0).start(1, 3, np.random.default_rng(0), None)
    keep(state.counts, 0, 8.0, 6.0)
    keep(state.counts, 1, 2.0, 0.0)
    evaluate(state, 50, np.random.default_rng(0))
    expected = [6 / 8 + math.log(50) / math.sqrt(16), math.log(50) / math.sqrt(4), math.inf]
    assert state.values.tolist() == pytest.approx(expected)


def test_q_ucb_explores_as_often_as_it_says() -> None:
    state = QUcb().start(1, 2, np.random.default_rng(0), None)
    for channel in range(2):
        keep(state.counts, channel, 1000.0, 1000.0)  # an index above 1 is no random number
    rng, t, draws = np.random.default_rng(2), 5000, 4000
    explored = 0
    for _ in range(draws):
        evaluate(state, t, rng)
        explored += bool((state.values < 1).all())
    chance = 3 * 2 * math.log(t) ** 2 / t
    assert abs(explored / draws - chance) <= 5 * math.sqrt(chance * (1 - chance) / draws)


@pytest.mark.parametrize(("rule", "token"), [("per_client", "aa"), ("sum", "aa-sum")])
def test_aoi_thompson_is_thompson_with_an_aware_rule(rule: str, token: str) -> None:
    result = simulate(
        "piecewise", ["aoi-thompson", f"thompson+{token}"], clients=2, rounds=300, runs=2,
        threads=1, progress=False, policy_options={"aoi-thompson": {"rule": rule}},
    )  # fmt: skip
    named, composed = result.age_curve.values
    assert named.tolist() == composed.tolist()
    with pytest.raises(ParameterError, match=r"AoI-aware by itself: leave out \+aa"):
        parse_policy(f"aoi-thompson+{token}")
