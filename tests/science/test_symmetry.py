"""No channel and no client is preferred for its number (T16)."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from freshband.channels import Table
from freshband.simulation import simulate
from tests.theory.margins import needs_compiler, standard_error

pytestmark = needs_compiler

MEANS = np.array([0.9, 0.8, 0.5, 0.4, 0.3])
ORDERS = [[4, 3, 2, 1, 0], [3, 0, 4, 1, 2]]
POLICIES = ["random", "cucb", "thompson", "m-exp3:paper", "glr-cucb", "glr-cucb:paper+aa"]


def play(channels: Any, policies: list[str], **options: Any) -> Any:
    settings = {"clients": 3, "points": 1, "threads": 1, "progress": False}
    return simulate(channels, policies, **{**settings, **options})


def test_channels_may_change_places() -> None:
    setting = {"rounds": 2000, "runs": 100}
    straight = play(
        "stationary", POLICIES, seed=0, channel_options={"means": MEANS.tolist()}, **setting
    )
    for seed, order in enumerate(ORDERS, start=1):
        mixed = play(
            "stationary", POLICIES, seed=seed, channel_options={"means": MEANS[order].tolist()},
            **setting,
        )  # fmt: skip
        for measure in ("regret", "cumulative_variance", "delivered"):
            for policy in POLICIES:
                a, b = (each[measure].sel(policy=policy).values for each in (straight, mixed))
                margin = 5 * math.hypot(standard_error(a), standard_error(b))
                assert abs(a.mean() - b.mean()) <= margin, (measure, policy, order)


def test_an_oracle_does_exactly_the_same_on_channels_that_changed_places() -> None:
    states = (np.random.default_rng(0).random((600, 5)) < MEANS).astype(int)
    assert len(set(states.sum(axis=0))) == 5  # no ties
    policies = ["oracle:fixed+age"]
    ages = [
        play(Table(states=states[:, order]), policies, rounds=600, runs=1, points=600).age_curve
        for order in ([0, 1, 2, 3, 4], *ORDERS)
    ]
    assert (ages[0] == ages[1]).all()
    assert (ages[0] == ages[2]).all()


def test_clients_are_served_alike() -> None:
    rounds = 20_000
    result = play(
        "stationary", POLICIES, rounds=rounds, runs=20, seed=0,
        channel_options={"means": MEANS.tolist()},
    )  # fmt: skip
    # Equal ages are told apart by a hash of round and client, the same in every run. It is one
    # draw of a fair coin a round, worth at most .9 - .5 of a delivery, which runs do not average.
    coin = 0.4 / math.sqrt(rounds)
    for policy in POLICIES:
        shares = result.participation.sel(policy=policy).values
        for i, j in combinations(range(3), 2):
            difference = shares[:, i] - shares[:, j]
            margin = 5 * math.hypot(coin, standard_error(difference))
            assert margin < 0.03  # if the lower number went first it would be .10 and .20
            assert abs(difference.mean()) <= margin, (policy, i, j)
    jain = result.jain.mean("run").values
    assert jain == pytest.approx(1, abs=1e-3)
