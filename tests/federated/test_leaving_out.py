"""The federation without one client: the batched products against the definition (T11)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from freshband.federated.contribution import _LEAVE_ONE_OUT, cosine_distance, leave_one_out
from freshband.federated.leaving_out import _models_without, distances_to_rest

every_form = pytest.mark.parametrize("form", _LEAVE_ONE_OUT)
kinds = ["all", "one heard", "alike", "opposed", "one heavy", "weightless"]


def federation(m: int, p: int, seed: int, kind: str) -> tuple[Any, Any]:
    """Gradients and weights, some of them at the edge of what can be told apart."""
    rng = np.random.default_rng(seed)
    gradients, zeta = rng.normal(size=(m, p)), rng.dirichlet(np.ones(m))
    if kind == "one heard":
        gradients[1:] = 0
    elif kind == "alike":
        gradients = gradients[0] + 1e-3 * gradients
    elif kind == "opposed":
        gradients[1:] = -gradients[0] + 1e-3 * gradients[1:]
    elif kind == "one heavy":
        zeta = np.full(m, 1e-6)
        zeta[0] = 1 - 1e-6 * (m - 1)
    elif kind == "weightless":
        zeta = np.concatenate([[0.0], zeta[1:] / zeta[1:].sum()])
    return gradients * 10 ** rng.uniform(-3, 3), zeta


@given(st.integers(3, 9), st.integers(1, 40), st.integers(0, 10**6), st.sampled_from(kinds))
def test_distances_are_those_to_the_sum_of_the_others(m: int, p: int, seed: int, kind: str) -> None:
    gradients, zeta = federation(m, p, seed, kind)
    expected = []
    for one in range(m):
        rest = sum((zeta[j] * gradients[j] for j in range(m) if j != one), np.zeros(p))
        expected.append(cosine_distance(gradients[one], rest))
    for form in ("global_minus", "buffer"):
        found = distances_to_rest(torch.from_numpy(gradients), zeta, form)  # type: ignore[arg-type]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    single = distances_to_rest(torch.from_numpy(gradients).float(), zeta, "buffer")
    np.testing.assert_allclose(single, expected, rtol=0, atol=1e-3)


@given(st.integers(2, 9), st.integers(2, 40), st.integers(0, 10**6))
def test_the_printed_distances(m: int, p: int, seed: int) -> None:
    gradients, zeta = federation(m, p, seed, "all")
    rest = leave_one_out(np.zeros(p), gradients, zeta, "literal")
    found = distances_to_rest(torch.from_numpy(gradients), zeta, "literal")
    np.testing.assert_allclose(found, cosine_distance(gradients, rest), rtol=0, atol=1e-9)


def test_distances_by_hand() -> None:
    gradients = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    found = distances_to_rest(gradients, np.full(3, 1 / 3), "global_minus")
    assert found == pytest.approx([1 - 2**-0.5, 1 - 2**-0.5, 1], abs=1e-15)
    # without the first: 0.2 (1, 0) + 0.3 (0, 1)
    found = distances_to_rest(gradients, np.array([0.5, 0.2, 0.3]), "global_minus")
    assert found[0] == pytest.approx(1 - 2 / 13**0.5, abs=1e-15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_who_has_all_the_weight_is_at_no_distance(dtype: torch.dtype) -> None:
    """Exactly: a rounding error would become its share of all contributions."""
    for seed in range(20):
        gradients = torch.from_numpy(federation(3, 50, seed, "all")[0]).to(dtype)
        found = distances_to_rest(gradients, np.array([0.0, 1.0, 0.0]), "global_minus")
        assert found[1] == 0.0
        assert (found[[0, 2]] > 0).all()


def test_a_client_alone() -> None:
    assert distances_to_rest(torch.ones(1, 4), np.ones(1), "global_minus").tolist() == [0]


@pytest.mark.parametrize("size", [0.0, 1e-30, 1e18])
@every_form
def test_distances_are_numbers_whatever_the_size(size: float, form: Any) -> None:
    gradients = torch.ones(3, 5) * size
    gradients[2] = 0
    found = distances_to_rest(gradients, np.full(3, 1 / 3), form)
    assert np.isfinite(found).all()
    assert ((found >= 0) & (found <= 2)).all()


@given(st.integers(2, 9), st.integers(1, 30), st.integers(0, 10**6))
def test_models_are_the_formulas(m: int, p: int, seed: int) -> None:
    models, zeta = federation(m, p, seed, "all")
    whole = np.random.default_rng(seed + 1).normal(size=p)
    everybody = np.ones(m, bool)
    who = np.arange(m)[::2]
    for form in _LEAVE_ONE_OUT:
        found = _models_without(
            torch.from_numpy(whole), torch.from_numpy(models), zeta, everybody, who,
            form,  # type: ignore[arg-type]
        )  # fmt: skip
        expected = leave_one_out(whole, models, zeta, form)[who]  # type: ignore[arg-type]
        scale = np.abs(models).max() + np.abs(whole).max() + 1
        slack = 1e-13 * scale / (1 - zeta[who, None])
        assert (np.abs(found.numpy() - expected) <= slack).all()


def test_models_by_hand() -> None:
    model = torch.tensor([1.0, 2.0], dtype=torch.float64)
    models = torch.tensor([[3.0, 0.0], [1.0, 1.0], [9.0, 9.0]], dtype=torch.float64)
    zeta, heard = np.array([0.5, 0.25, 0.25]), np.array([True, True, False])

    def found(form: Any) -> list[list[float]]:
        return _models_without(model, models, zeta, heard, np.array([0, 1, 2]), form).tolist()

    # (w - ζ w_m) / (1 - ζ); nobody ever heard of the third
    assert found("global_minus") == [[-1, 4], [1, pytest.approx(7 / 3)], [1, 2]]
    # the third still holds the model: (0.25 (1, 1) + 0.25 (1, 2)) / 0.5, and with 0.5 (3, 0)
    assert found("buffer") == [[1, 1.5], [pytest.approx(7 / 3), pytest.approx(2 / 3)], [1, 2]]
    # (1 - ζ w_m) / (1 - ζ)
    assert found("literal") == [[-1, 2], [1, 1], [1, 2]]


@every_form
def test_the_model_is_all_there_is(form: Any) -> None:
    model, models = torch.tensor([1.0, 2.0]), torch.tensor([[3.0, 4.0], [5.0, 6.0]])
    nobody = _models_without(model, models, np.ones(2) / 2, np.zeros(2, bool), np.arange(2), form)
    assert nobody.tolist() == [[1, 2], [1, 2]]
    alone = _models_without(
        model, models, np.array([1.0, 0.0]), np.ones(2, bool), np.array([0]), form
    )
    assert alone.tolist() == [[1, 2]]


def test_a_client_without_weight_leaves_the_others() -> None:
    """Its part is nothing, but where the others are put together they are not the model."""
    model = torch.tensor([1.0, 2.0], dtype=torch.float64)
    models = torch.tensor([[3.0, 0.0], [1.0, 1.0], [5.0, 7.0]], dtype=torch.float64)
    zeta, who = np.array([0.0, 0.5, 0.5]), np.array([0])
    for form, expected in [("global_minus", [1, 2]), ("buffer", [3, 4]), ("literal", [1, 1])]:
        found = _models_without(model, models, zeta, np.ones(3, bool), who, form)  # type: ignore[arg-type]
        assert found.tolist() == [expected]


@every_form
def test_nobody_asked(form: Any) -> None:
    nobody = np.zeros(0, np.int64)
    found = _models_without(
        torch.ones(3), torch.ones(2, 3), np.ones(2) / 2, np.ones(2, bool), nobody, form
    )
    assert found.shape == (0, 3)


@every_form
def test_what_is_given_is_left_alone(form: Any) -> None:
    gradients, zeta = federation(4, 6, 0, "all")
    rows, model = torch.from_numpy(gradients), torch.ones(6, dtype=torch.float64)
    copies = [gradients.copy(), zeta.copy(), model.clone()]
    distances_to_rest(rows, zeta, form)
    _models_without(model, rows, zeta, np.ones(4, bool), np.arange(4), form)
    assert np.array_equal(rows.numpy(), copies[0])
    assert np.array_equal(zeta, copies[1])
    assert torch.equal(model, copies[2])
