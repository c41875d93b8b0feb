"""Any numbers of clients and channels, weights and a cap: rules against the exact optimum."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from freshband._jit import entry_point
from freshband.matching._assignment import assign
from freshband.matching.base import match, registry
from tests.reference import mdp
from tests.theory.margins import needs_compiler

CAP = {2: 60, 3: 30, 4: 16}  # ages are cut off here
PRECISION = 1e-3  # of costs, which are 3 and more


class Instance(NamedTuple):
    rates: NDArray[np.float64]  # (M, N)
    weights: NDArray[np.float64]  # (M,)
    most: int | None  # transmissions per round

    @property
    def cap(self) -> int:
        return CAP[len(self.rates)]

    @property
    def alike(self) -> bool:
        return bool((self.weights == 1).all() and (self.rates == self.rates[0]).all())


SIZES = [
    (2, 1, None), (3, 1, None), (2, 2, None), (2, 3, None), (3, 2, None), (3, 3, None),
    (2, 2, 1), (3, 3, 2), (3, 2, 1),
]  # fmt: skip


def draw_instances() -> list[Instance]:
    """For each size shared and different links, unequal and equal weights."""
    rng = np.random.default_rng(2026)
    found = []
    for n_clients, n_channels, most in SIZES:
        for rows in (1, n_clients):
            for weighted in (True, False):
                rates = rng.uniform(0.3, 0.9, (rows, n_channels)).round(2)
                weights = rng.uniform(0.5, 2.5, n_clients) if weighted else np.ones(n_clients)
                whole = np.broadcast_to(rates, (n_clients, n_channels))
                found.append(Instance(whole, weights.round(2), most))
    return found


INSTANCES = draw_instances()


@entry_point
def _fill(urgency: Any, rates: Any, most: int, rule: Any) -> None:
    """Assign in every state: rule has the shape (states, M), urgency (M, cap)."""
    n_clients, cap = urgency.shape
    clients, channels = np.arange(n_clients), np.arange(rates.shape[1])
    pressing = np.zeros(n_clients)
    for state in range(len(rule)):
        rest = state
        for client in range(n_clients - 1, -1, -1):
            pressing[client] = urgency[client, rest % cap]
            rest //= cap
        assign(pressing, rates, clients, channels, most, rule[state])


def package_rule(case: Instance) -> NDArray[np.int64]:
    """What the package's solver makes of urgencies w a (a + 1)."""
    n_clients, age = len(case.rates), np.arange(1.0, case.cap + 1)
    urgency = case.weights[:, None] * age * (age + 1)
    urgency[:, -1] *= mdp.FIRST
    rule = np.full((case.cap**n_clients, n_clients), -1)
    _fill(urgency, np.ascontiguousarray(case.rates), case.most or n_clients, rule)
    return rule.T.reshape(n_clients, *(case.cap,) * n_clients)


def rules(case: Instance) -> dict[str, NDArray[np.int64]]:
    given = case.rates, case.weights, case.cap
    return {
        "w a (a + 1)": package_rule(case),
        "w a": mdp.most_worth(mdp.one_step(*given), case.most),
        "Whittle": mdp.most_worth(mdp.whittle(*given), case.most),
        "oldest first": mdp.oldest_first(*given, case.most),
    }


def excess(case: Instance) -> dict[str, float]:
    """How far above the optimum each rule is, as a fraction, with the error on the unsafe side."""
    best = mdp.solve(case.rates, case.cap, case.weights, case.most, PRECISION).low
    return {
        name: mdp.evaluate(case.rates, [rule], case.weights, PRECISION)[1] / best - 1
        for name, rule in rules(case).items()
    }


@cache
def all_excesses() -> dict[str, NDArray[np.float64]]:
    found = [excess(case) for case in INSTANCES]
    return {name: np.array([each[name] for each in found]) for name in found[0]}


# ------------------------------------------------------------------------------------- the oracle


@pytest.mark.parametrize("index", [6, 19, 30])
def test_where_ages_are_cut_off_does_not_matter(index: int) -> None:
    rates, weights, most = INSTANCES[index]
    shallow, deep = (mdp.solve(rates, cap, weights, most, PRECISION) for cap in (30, 60))
    assert deep.low == pytest.approx(shallow.low, abs=2 * PRECISION)


def test_one_client_sends_always_and_equal_clients_take_turns() -> None:
    assert mdp.solve([[0.4]], 60).low == pytest.approx(1 / 0.4, abs=1e-6)
    certain = mdp.solve([[1.0]] * 3, 12)
    assert certain.low == pytest.approx(1 + 2 + 3, abs=1e-6)


# -------------------------------------------------------------------------------------- the rules


@needs_compiler
def test_the_rule_of_the_package_is_near_the_optimum() -> None:
    found = all_excesses()["w a (a + 1)"]
    assert found.max() < 0.0065  # worst of 36
    assert found.mean() < 0.0012


@needs_compiler
def test_no_other_rule_is_as_good() -> None:
    """The figures of the chapter "More clients than channels"."""
    found = all_excesses()
    worst = {name: round(100 * float(each.max()), 1) for name, each in found.items()}
    mean = {name: round(100 * float(each.mean()), 2) for name, each in found.items()}
    assert worst == {"w a (a + 1)": 0.6, "w a": 3.0, "Whittle": 11.8, "oldest first": 6.6}
    assert mean == {"w a (a + 1)": 0.11, "w a": 0.38, "Whittle": 1.22, "oldest first": 1.10}


@needs_compiler
def test_it_is_not_always_the_best() -> None:
    """The worst case found, two clients on one channel: Whittle's index is better."""
    case = Instance(np.array([[0.32], [0.93]]), np.array([1.0, 7.4]), None)
    found = excess(case)
    assert found["Whittle"] < 0.012 < 0.022 < found["w a (a + 1)"] < 0.024
    assert found["w a"] > 0.3  # the weighty client is served until the other is very old
    assert found["oldest first"] > 0.6


@needs_compiler
def test_it_agrees_with_trying_all_assignments() -> None:
    for case in INSTANCES[::5]:
        given = case.rates, case.weights, case.cap
        slow = mdp.most_worth(mdp.squares(*given), case.most)
        costs = [
            mdp.evaluate(case.rates, [rule], case.weights, PRECISION)
            for rule in (slow, package_rule(case))
        ]
        assert costs[0] == pytest.approx(costs[1], abs=PRECISION)


@needs_compiler
def test_with_equal_weights_and_shared_rates_it_is_matching_by_age() -> None:
    rng = np.random.default_rng(3)
    for case in filter(lambda case: case.alike, INSTANCES):
        n_clients, n_channels = case.rates.shape
        n_pairs = min(n_clients, n_channels, case.most or n_clients)
        row, state = case.rates[0], registry["age"]().start(n_clients)
        best = np.argsort(-row)[:n_pairs]
        rule = package_rule(case)
        for ages in rng.integers(1, case.cap, (50, n_clients)):
            by_age = np.full(n_clients, -1)
            zeros = np.zeros(n_clients)
            match(state, 1, best.copy(), row[None, :], ages, zeros, None, by_age)
            found = rule[(slice(None), *(ages - 1))]
            for plan in (by_age, found):
                assert sorted(plan[plan >= 0]) == sorted(best)
            served = [np.sort(ages[plan >= 0]) for plan in (by_age, found)]
            np.testing.assert_array_equal(*served)
            rates = [np.where(plan >= 0, row[plan], 0.0) for plan in (by_age, found)]
            assert (ages * rates[0]).sum() == pytest.approx((ages * rates[1]).sum(), abs=1e-12)


@pytest.mark.slow
@needs_compiler
def test_pairs_of_clients_with_very_unequal_weights() -> None:
    rng = np.random.default_rng(7)
    found = []
    for _ in range(200):
        rates, weights = rng.uniform(0.3, 0.95, (2, 1)), np.array([1.0, rng.uniform(1, 10)])
        found.append(excess(Instance(rates.round(2), weights.round(1), None)))
    for name, mean, worst in (
        ("w a (a + 1)", 0.5, 1.7),
        ("Whittle", 0.5, 1.3),
        ("w a", 6.2, 32.4),
        ("oldest first", 13.1, 70.2),
    ):
        each = 100 * np.array([one[name] for one in found])
        assert each.mean() == pytest.approx(mean, abs=0.06)
        assert each.max() == pytest.approx(worst, abs=0.06)


@pytest.mark.slow
@needs_compiler
def test_four_clients() -> None:
    rng = np.random.default_rng(5)
    for n_channels in (2, 3):
        rates = rng.uniform(0.5, 0.9, (4, n_channels)).round(2)
        found = excess(Instance(rates, rng.uniform(0.7, 1.5, 4).round(2), None))
        assert found["w a (a + 1)"] < 0.004
        assert found["w a (a + 1)"] < found["oldest first"] / 4
