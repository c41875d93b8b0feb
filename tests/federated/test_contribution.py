"""Leave-one-out, contributions and Shapley values (T11)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from freshband.errors import ParameterError
from freshband.federated._state import Pending
from freshband.federated._valuation import Valuation
from freshband.federated.contribution import (
    ValuationOptions,
    _shapley_values,
    cosine_distance,
    leave_one_out,
)


def contributions(
    gradients: Any, errors: list[float], weights: list[float], heard: list[bool], **options: Any
) -> Any:
    """What the server makes of the updates and errors that were heard."""
    rows = torch.tensor(gradients, dtype=torch.float64)
    valuation = Valuation(len(rows), 1.0, options=ValuationOptions(**options))
    valuation.open(rows[0], keeps_models=False)
    sent = {m: Pending(rows[m], 0, error=errors[m]) for m in range(len(rows)) if heard[m]}
    valuation.take(1, sent, np.array(weights))
    return valuation.contributions


def federation(m: int, p: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(m, p)), rng.dirichlet(np.ones(m))


@given(st.integers(2, 12), st.integers(1, 40), st.integers(0, 10**6))
def test_leaving_one_out_is_the_mean_of_the_others(m: int, p: int, seed: int) -> None:
    parts, zeta = federation(m, p, seed)
    for form in ("global_minus", "buffer"):
        found = leave_one_out(zeta @ parts, parts, zeta, form)  # type: ignore[arg-type]
        for k in range(m):
            others = [j for j in range(m) if j != k]
            exact = sum(zeta[j] * parts[j] for j in others) / sum(zeta[j] for j in others)
            scale = np.abs(parts).max() / (1 - zeta[k])
            assert np.abs(found[k] - exact).max() <= 1e-12 * scale


def test_only_global_minus_sees_what_is_not_in_the_buffer() -> None:
    parts, zeta = federation(4, 6, 0)
    whole = zeta @ parts + 1.0
    shift = leave_one_out(whole, parts, zeta) - leave_one_out(whole, parts, zeta, "buffer")
    assert shift == pytest.approx(np.repeat(1 / (1 - zeta[:, None]), 6, axis=1))


def test_the_printed_form_tells_clients_apart_by_nothing() -> None:
    m, p = 20, 100_000
    rng = np.random.default_rng(0)
    parts = rng.normal(size=(m, p)) + 3.0 * rng.normal(size=(m, 1)) * rng.normal(size=p)
    zeta = np.full(m, 1 / m)
    printed = cosine_distance(parts, leave_one_out(zeta @ parts, parts, zeta, "literal"))
    meant = cosine_distance(parts, leave_one_out(zeta @ parts, parts, zeta))
    assert abs(printed - printed.mean()).max() < 0.35 < meant.max() - meant.min()


def test_one_client_alone() -> None:
    parts = np.array([[1.0, 2.0]])
    assert leave_one_out(parts[0], parts, [1.0]).tolist() == [[1.0, 2.0]]


def test_contributions_by_hand() -> None:
    # the odd one out is at right angles to the rest; the others see (1, 1) / 2
    gradients = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    found = contributions(gradients, [0.2, 0.4, 0.6], [1 / 3] * 3, [True] * 3)
    near = 1 - 2**-0.5
    assert found == pytest.approx([0.2 * near, 0.4 * near, 0.6])


@pytest.mark.parametrize(("rule", "filled"), [("mean", 0.3), ("max", 0.4), ("zero", 0.0)])
def test_a_client_never_heard(rule: Any, filled: float) -> None:
    gradients = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    found = contributions(
        gradients, [0.2, 0.4, 1.0], [0.5, 0.5, 0.0], [True, True, False], cold_start=rule
    )
    assert found == pytest.approx([0.2, 0.4, filled])


def test_nobody_heard_yet_is_equal() -> None:
    found = contributions(np.zeros((3, 2)), [0, 0, 0], [1 / 3] * 3, [False] * 3)
    assert found.tolist() == [1, 1, 1]


@given(st.integers(1, 6), st.integers(0, 10**6))
def test_shapley_is_efficient_symmetric_and_additive(m: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    own = rng.random(m)
    pair = rng.random()

    def value(coalition: frozenset[int]) -> float:
        return sum(own[j] for j in coalition) + pair * (len(coalition) >= 2)

    found = _shapley_values(value, m)
    assert found.sum() == pytest.approx(value(frozenset(range(m))) - value(frozenset()))
    bonus = found - own  # the pair's worth is shared alike
    assert bonus == pytest.approx(np.full(m, pair / m if m >= 2 else 0.0), abs=1e-12)


def test_shapley_of_a_glove_market() -> None:
    # one left glove, two right ones: 2/3, 1/6, 1/6
    found = _shapley_values(lambda c: float(0 in c and len(c) >= 2), 3)
    assert found == pytest.approx([2 / 3, 1 / 6, 1 / 6])


@pytest.mark.parametrize(
    "call",
    [
        lambda: leave_one_out(np.zeros(3), np.zeros((2, 2)), [0.5, 0.5]),
        lambda: leave_one_out(np.zeros(2), np.zeros((2, 2)), [0.5, 0.5], "minus"),  # type: ignore[arg-type]
        lambda: ValuationOptions(cold_start="min"),  # type: ignore[arg-type]
        lambda: _shapley_values(lambda c: 0.0, 17),
    ],
)
def test_bad_input_is_refused(call: Any) -> None:
    with pytest.raises(ParameterError):
        call()
