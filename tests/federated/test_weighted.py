"""Weights of clients, steps of the weighted means and staleness, by hand-worked numbers (T12)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from freshband.errors import ParameterError
from freshband.federated.algorithms import build_algorithm
from freshband.federated.algorithms._weighted import WeightedMean
from freshband.federated.algorithms.fedasync import FedAsync
from freshband.federated.algorithms.fedavg import _WEIGHTINGS
from freshband.federated.algorithms.fedbuff import FedBuff
from freshband.federated.contribution import _client_weights

ZETA = [0.5, 0.25, 0.125, 0.125]
ARRIVED = [True, False, True, False]


def update_steps(
    weights: ArrayLike,
    delivered: ArrayLike,
    client_lr: float,
    rule: str = "renorm",
    **options: float,
) -> NDArray[np.float64]:
    mean = build_algorithm(rule, options)
    assert isinstance(mean, WeightedMean)
    return mean.steps(weights, delivered, client_lr)


def test_weights_are_shares_of_all_contributions() -> None:
    assert _client_weights([2, 1, 1]).tolist() == [0.5, 0.25, 0.25]
    assert _client_weights([0, 0, 0]).tolist() == [1 / 3] * 3


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        # eta = 0.1, server step 2; zeta of those who arrived: 0.5 and 0.125
        ("renorm", [2 * 0.1 * 0.8, 0, 2 * 0.1 * 0.2, 0]),
        ("mean_one", [2 * 0.1 * 4 * 0.5 / 2, 0, 2 * 0.1 * 4 * 0.125 / 2, 0]),
        ("fixed", [2 * 0.1 * 0.5, 0, 2 * 0.1 * 0.125, 0]),
        ("uniform", [2 * 0.1 / 2, 0, 2 * 0.1 / 2, 0]),
        ("literal", [2 * 0.5 / 2, 0, 2 * 0.125 / 2, 0]),
    ],
)
def test_steps_by_hand(rule: Any, expected: list[float]) -> None:
    steps = update_steps(ZETA, ARRIVED, client_lr=0.1, rule=rule, server_lr=2.0)
    assert steps == pytest.approx(expected, abs=1e-15)


@given(st.integers(1, 30), st.floats(1e-3, 1.0))
def test_equal_weights_and_full_delivery_make_them_agree(m: int, lr: float) -> None:
    zeta, everybody = np.full(m, 1 / m), np.ones(m, bool)
    renorm, fixed, mean_one, uniform, literal = (
        update_steps(zeta, everybody, lr, rule=rule)
        for rule in ("renorm", "fixed", "mean_one", "uniform", "literal")
    )
    assert fixed == pytest.approx(renorm, rel=1e-12)
    assert mean_one == pytest.approx(renorm, rel=1e-12)
    assert uniform == pytest.approx(renorm, rel=1e-12)
    assert literal * (m * lr) == pytest.approx(renorm, rel=1e-12)  # the stated factor 1/(M eta)


@given(st.integers(2, 12), st.data())
def test_fixed_is_the_best_multiple_of_a_mean_of_orthogonal_updates(m: int, data: Any) -> None:
    arrived = np.array(data.draw(st.lists(st.booleans(), min_size=m, max_size=m).filter(any)))
    updates = np.linalg.qr(np.random.default_rng(m).normal(size=(m, m)))[0]
    target, heard = updates.mean(axis=0), updates[arrived].mean(axis=0)
    best = (heard @ target) / (heard @ heard)
    steps = update_steps(np.full(m, 1 / m), arrived, client_lr=1.0, rule="fixed")
    assert steps @ updates == pytest.approx(best * heard, abs=1e-12)
    assert best == pytest.approx(arrived.sum() / m)


@pytest.mark.parametrize("rule", _WEIGHTINGS)
def test_nobody_arrived_moves_nothing(rule: Any) -> None:
    assert update_steps(ZETA, [False] * 4, 0.1, rule=rule).tolist() == [0, 0, 0, 0]


def test_arrivals_without_weight_share_equally() -> None:
    steps = update_steps([1.0, 0.0, 0.0], [False, True, True], 0.1)
    assert steps == pytest.approx([0, 0.05, 0.05])


@pytest.mark.parametrize("rule", [FedAsync, FedBuff])
def test_staleness_weights(rule: Any) -> None:
    missed = np.array([-1, 0, 1, 8])
    assert rule(staleness_a=0.5).discount(missed) == pytest.approx([1, 1, 2**-0.5, 1 / 3])
    hinge = rule(staleness="hinge", staleness_a=0.5, staleness_b=4)
    assert hinge.discount(np.array([0, 4, 5, 14])) == pytest.approx([1, 1, 1 / 1.5, 1 / 6])
    assert rule(staleness="constant").discount(np.array([0, 9])).tolist() == [1, 1]


@pytest.mark.parametrize(
    "call",
    [
        lambda: _client_weights([1, -1]),
        lambda: _client_weights([1, float("nan")]),
        lambda: _client_weights([]),
        lambda: update_steps(ZETA, [True], 0.1),
        lambda: update_steps(ZETA, ARRIVED, 0.0),
        lambda: update_steps(ZETA, ARRIVED, 0.1, server_lr=float("nan")),
        lambda: update_steps(ZETA, ARRIVED, 0.1, rule="sum"),
        lambda: FedBuff(staleness="linear"),  # type: ignore[arg-type]
    ],
)
def test_bad_input_is_refused(call: Any) -> None:
    with pytest.raises(ParameterError):
        call()
