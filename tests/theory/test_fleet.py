"""The bound on the weighted mean age of any fleet: below all policies, and not far."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from freshband.errors import ParameterError
from freshband.simulation import simulate
from freshband.theory import weighted_age_bound
from tests.reference import mdp
from tests.theory.margins import needs_compiler, standard_error
from tests.theory.test_fleet_optimum import INSTANCES, PRECISION, Instance


def bound_of(case: Instance) -> float:
    """The bound on the weighted sum of ages."""
    found = weighted_age_bound(case.rates, weights=case.weights, max_transmissions=case.most)
    assert found.holds
    return float(found.value * case.weights.sum())


def test_the_optimum_is_above_and_near() -> None:
    best = [
        mdp.solve(case.rates, case.cap, case.weights, case.most, PRECISION).high
        for case in INSTANCES
    ]
    ratios = np.array([bound_of(case) for case in INSTANCES]) / best
    assert ratios.max() <= 1
    assert ratios.min() > 0.89  # the figures of the chapter
    assert ratios.mean() > 0.945


def test_no_rule_is_below() -> None:
    """Rules drawn at random, which stay the same in each state, evaluated exactly."""
    rng = np.random.default_rng(8)
    for _ in range(30):
        n_clients, n_channels = (int(n) for n in rng.integers(1, 4, 2))
        rates = rng.uniform(0.3, 0.95, (n_clients, n_channels))
        weights = rng.uniform(0.3, 3, n_clients)
        plans = np.array(mdp.actions(n_clients, n_channels))
        cap = 20
        rule = np.moveaxis(plans[rng.integers(len(plans), size=(cap,) * n_clients)], -1, 0)
        high = mdp.evaluate(rates, [rule], weights, PRECISION)[1]
        assert bound_of(Instance(rates, weights, None)) <= high


@needs_compiler
def test_no_simulated_policy_is_below() -> None:
    means = [0.9, 0.6, 0.5, 0.3]
    bound = float(weighted_age_bound(means, 3).value)
    result = simulate(
        "stationary", ["oracle:mean+age", "oracle:mean+rotate", "random", "thompson"], clients=3,
        rounds=5000, runs=20, seed=2, points=1, threads=1, progress=False,
        channel_options={"means": means},
    )  # fmt: skip
    for ages in result.mean_age.values:
        assert ages.mean() > bound + 5 * standard_error(ages)
    assert float(result.mean_age.sel(policy="oracle:mean+age").mean()) / bound < 1.1


@pytest.mark.parametrize("p", [0.2, 0.5, 1.0])
def test_it_is_attained_where_nobody_has_to_share(p: float) -> None:
    assert float(weighted_age_bound([p], 1).value) == pytest.approx(1 / p, rel=1e-4)
    apart = [[p, 0.1 * p], [0.1, 0.8]]
    weights = np.array([1.0, 3.0])
    exact = (weights / [p, 0.8]).sum() / weights.sum()
    assert float(weighted_age_bound(apart, weights=weights).value) == pytest.approx(exact, rel=1e-4)


@pytest.mark.parametrize("n_clients", [2, 5, 9])
def test_it_is_attained_by_turns_on_a_certain_channel(n_clients: int) -> None:
    found = float(weighted_age_bound([1.0], n_clients).value)
    assert found == pytest.approx((n_clients + 1) / 2, rel=1e-4)


def test_it_is_the_minimum_of_the_program() -> None:
    """Against a general solver over all shares, for links that differ, weights and a cap."""
    rng = np.random.default_rng(4)
    for n_clients, n_channels, most in ((3, 2, 2), (2, 3, 1), (4, 3, 2)):
        rates = rng.uniform(0.2, 0.95, (n_clients, n_channels))
        weights = rng.uniform(0.5, 2, n_clients)
        best, shape = rates.max(axis=1), rates.shape

        def cost(
            x: Any, rates: Any = rates, weights: Any = weights, best: Any = best, shape: Any = shape
        ) -> float:
            q = (rates * x.reshape(shape)).sum(axis=1)
            return float((weights * (1 + 1 / q + q * (1 - best) / best**2)).sum() / 2)

        limits = [
            {"type": "ineq", "fun": lambda x, shape=shape: 1 - x.reshape(shape).sum(axis=0)},
            {"type": "ineq", "fun": lambda x, shape=shape: 1 - x.reshape(shape).sum(axis=1)},
            {"type": "ineq", "fun": lambda x, most=most: most - x.sum()},
        ]
        start = np.full(rates.size, most / rates.size)
        solved = minimize(cost, start, bounds=[(1e-4, 1)] * rates.size, constraints=limits)
        assert solved.success
        found = bound_of(Instance(rates, weights, most))
        assert found == pytest.approx(solved.fun, rel=2e-3)
        assert found <= solved.fun * (1 + 1e-6)


def test_more_channels_and_transmissions_help_and_scale_of_weights_does_not_matter() -> None:
    rates = [[0.9, 0.5, 0.4], [0.3, 0.8, 0.6], [0.7, 0.7, 0.2], [0.5, 0.6, 0.9]]
    values = [float(weighted_age_bound(rates, max_transmissions=s).value) for s in (1, 2, 3, 9)]
    assert values[0] > values[1] > values[2] == values[3]
    weighted = [
        float(weighted_age_bound(rates, weights=scale * np.arange(1, 5)).value) for scale in (1, 7)
    ]
    assert weighted[0] == pytest.approx(weighted[1], rel=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: weighted_age_bound([0.5]), "n_clients must be given with rates of shape"),
        (lambda: weighted_age_bound(0.5, 1), r"rates must have the shape \(N,\) or \(M, N\), got"),
        (lambda: weighted_age_bound([[0.5]], 2), r"rates must have the shape \(N,\), or \(M, N\)"),
        (lambda: weighted_age_bound([[0.5, 0.1], [0, 0]]), "rates must be above 0 on at least one"),
        (lambda: weighted_age_bound([1.5], 1), r"rates must be numbers in \[0, 1\], got 1.5"),
        (lambda: weighted_age_bound([0.5], 2, weights=[1]), "weights must be one number for each"),
        (lambda: weighted_age_bound([0.5], 1, weights=[0]), "weights must be finite numbers > 0"),
        (lambda: weighted_age_bound([0.5], 1, max_transmissions=0), "max_transmissions must be a"),
    ],
)
def test_bad_input(call: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        call()
