"""Theorem 1 with power: every inequality at its own extremal case, where less would be wrong."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshband.errors import ParameterError
from freshband.theory import ConvergenceBound, convergence_bound
from tests.reference.async_sgd import Quadratics, expectation

# ------------------------------------------------------------------------------- extremal cases
#
# Curvature L = 1 and Lη̃ = 1: descent loses nothing, contraction is 0, and what a round adds is
# half the square of the gradient's mismatch. In each case the true gap *is* the bound.


def both(
    centres: list[float], delivered: Any, start: float, local_steps: int = 1, sigma: float = 0.0
) -> tuple[float, ConvergenceBound]:
    """The expected gap after the last round, and the bound with the run's own constants."""
    problem = Quadratics([1.0] * len(centres), centres)
    step = 1 / local_steps
    gaps, gradient, _ = expectation(problem, delivered, start, step, local_steps, sigma)
    bound = convergence_bound(
        delivered, gap=gaps[0], smoothness=1, gradient=gradient, step=step, noise=sigma,
        local_steps=local_steps, pl=1,
    )  # fmt: skip
    assert bound.holds.all()
    return float(gaps[-1]), bound


EXTREMES = {
    "participation": (([1.0, -1.0], [[1, 0]], 0.0), 1 / 2),
    "staleness": (([1.0, 0.5], [[1, 0], [1, 1]], 0.0), 1 / 8),
    "drift": (([0.0], [[1]], 1.0, 2), 1 / 32),
}


@pytest.mark.parametrize("name", EXTREMES)
def test_mismatch_is_attained(name: str) -> None:
    case, expected = EXTREMES[name]
    gap, bound = both(*case)  # type: ignore[arg-type]
    assert gap == pytest.approx(expected, rel=1e-12)
    assert float(bound.value[-1]) == pytest.approx(gap, rel=1e-12)
    parts = {key: float(part[-1]) for key, part in bound.mismatch.items()}
    assert parts.pop(name) > 0
    assert set(parts.values()) == {0.0}  # nothing else is at work
    for wrong in (0.9, 0.99):  # so that any smaller constant is refuted
        assert 0.5 * (wrong * float(bound.mismatch[name][-1])) ** 2 < gap


def test_noise_is_attained() -> None:
    gap, bound = both([0.0, 0.0], [[1, 1]], 0.0, sigma=0.8)
    assert gap == pytest.approx(0.8**2 / 4, rel=1e-12)
    assert float(bound.value[-1]) == pytest.approx(gap, rel=1e-12)
    assert float(bound.errors["noise"][-1]) == pytest.approx(gap, rel=1e-12)


def second_moments(
    curvature: float, local_steps: int, n_clients: int, step: float
) -> tuple[float, dict[str, float]]:
    """(L/2) η̃² (E|Γ1|² - E|Γ2|²) from a stationary point, and the terms that should bound it."""
    problem = Quadratics([curvature] * n_clients, [0.0] * n_clients)
    everybody = [[1] * n_clients]
    _, gradient, applied = expectation(problem, everybody, 0.0, step, local_steps, sigma=1.0)
    bound = convergence_bound(
        everybody, gap=1, smoothness=1, gradient=gradient, step=step, noise=1, pl=1,
        local_steps=local_steps,
    )  # fmt: skip
    excess = (step * local_steps) ** 2 / 2 * (applied[0, 0] - applied[0, 1])
    return float(excess), {name: float(error[0]) for name, error in bound.errors.items()}


@pytest.mark.parametrize(("local_steps", "n_clients"), [(2, 1), (2, 2), (3, 1), (4, 2), (6, 1)])
def test_noise_and_gradients_of_one_upload_are_coupled(local_steps: int, n_clients: int) -> None:
    """Where curvature is negative, E|Γ1|² exceeds E|Γ2|² + E|Γ1 - Γ2|²."""
    excess, terms = second_moments(-1.0, local_steps, n_clients, step=0.05)
    assert excess > 1.01 * terms["noise"]  # without the coupling term the step would be wrong
    assert excess <= terms["noise"] + terms["coupling"]
    helped, _ = second_moments(1.0, local_steps, n_clients, step=0.05)
    assert helped < terms["noise"]  # with positive curvature it helps


@pytest.mark.parametrize("n_clients", [1, 2, 3])
def test_coupling_is_attained(n_clients: int) -> None:
    excess, terms = second_moments(-1.0, 2, n_clients, step=0.01)
    assert terms["noise"] + 0.99 * terms["coupling"] < excess
    assert excess <= terms["noise"] + terms["coupling"]


def test_polyak_lojasiewicz_is_needed_in_that_direction() -> None:
    """‖∇F‖² >= 2L(F - F*), which (57) would need, fails wherever curvatures differ."""
    flat = np.array([0.0, 1.0])
    hessian = np.array([1.0, 1e-3])
    gradient, gap = (hessian * flat) @ (hessian * flat), hessian @ flat**2 / 2
    assert gradient < 2 * 1.0 * gap / 100  # L = 1
    assert gradient == pytest.approx(2 * 1e-3 * gap)  # PL with μ = 0.001, attained


# ------------------------------------------------------------------------------ the whole theorem


@settings(max_examples=150)
@given(st.data())
def test_never_below_the_exact_expectation(data: Any) -> None:
    """Any small federation, non-convex clients included, any pattern of deliveries."""
    clients = data.draw(st.integers(1, 3))
    local_steps = data.draw(st.integers(1, 2 if clients < 3 else 1))
    rounds = data.draw(st.integers(1, 3))
    delivered = data.draw(
        st.lists(st.lists(st.integers(0, 1), min_size=clients, max_size=clients),
                 min_size=rounds, max_size=rounds)
    )  # fmt: skip
    curvatures = data.draw(st.lists(st.floats(-1, 1), min_size=clients, max_size=clients))
    if np.mean(curvatures) < 0.05:
        curvatures = [abs(h) + 0.05 for h in curvatures]
    centres = data.draw(st.lists(st.floats(-2, 2), min_size=clients, max_size=clients))
    sigma = data.draw(st.sampled_from([0.0, 0.5])) if clients * local_steps * rounds <= 9 else 0.0
    problem = Quadratics(curvatures, centres)
    smoothness = float(np.abs(curvatures).max()) * (1 + 1e-12)
    step = data.draw(st.floats(0.05, 0.999)) / (smoothness * local_steps)
    start = data.draw(st.floats(-2, 2))
    gaps, gradient, _ = expectation(problem, delivered, start, step, local_steps, sigma)
    bound = convergence_bound(
        delivered, gap=gaps[0], smoothness=smoothness, gradient=max(gradient, 1e-9), step=step,
        local_steps=local_steps, noise=sigma, pl=problem.curvature,
    )  # fmt: skip
    assert bound.holds.all()
    assert (gaps <= bound.value * (1 + 1e-9) + 1e-12).all()


def test_a_long_run_with_half_of_all_uploads_lost() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        problem = Quadratics(list(rng.uniform(0.2, 1, 4)), list(rng.normal(size=4)))
        delivered = rng.random((60, 4)) < 0.5
        gaps, gradient, _ = expectation(problem, delivered, 3.0, 0.05, 5, 0.0)
        bound = convergence_bound(
            delivered, gap=gaps[0], smoothness=1, gradient=gradient, step=0.05, local_steps=5,
            pl=problem.curvature,
        )  # fmt: skip
        assert bound.holds.all()
        assert (gaps <= bound.value).all()


def test_a_round_nobody_gets_through() -> None:
    """The model stays; what the bound adds makes up for the contraction it claims."""
    gap, bound = both([1.0, -1.0], [[0, 0]], 3.0)
    assert gap == 9 / 2
    assert gap <= float(bound.value[-1])
    assert float(bound.errors["noise"][0]) == float(bound.errors["coupling"][0]) == 0.0


def test_mean_staleness_is_enough() -> None:
    """The bound by the mean square, with a third of the split, is never better."""
    rng = np.random.default_rng(1)
    delivered = rng.random((50, 6)) < 0.4
    L, G, step, E, sigma = 1.0, 2.0, 0.04, 4, 1.0  # noqa: N806 - the paper's letters
    bound = convergence_bound(
        delivered, gap=1, smoothness=L, gradient=G, step=step, local_steps=E, noise=sigma, pl=0.5
    )
    ages = np.ones(6)
    for t, arrived in enumerate(delivered):
        stale = ages - 1
        whole, served = step * E, arrived.sum()
        split = (
            6 * whole * (1 - served / 6) ** 2 * G**2
            + 1.5 * L**2 * whole**3 * G**2 * np.mean(stale**2)
            + 0.25 * L**2 * whole * step**2 * G**2 * (E - 1) * (2 * E - 1)
        )
        assert float(bound.errors["mismatch"][t]) <= split
        ages = np.where(arrived, 1, ages + 1)


# -------------------------------------------------------------------------------- as printed, E3


def flat_quadratic(rounds: int = 500) -> tuple[float, ConvergenceBound, ConvergenceBound]:
    """F = (w1² + 0.001 w2²)/2 from (0, 1), one client, everything delivered, η = 0.05."""
    slope, step = 1e-3, 0.05
    gap = slope / 2
    actual = gap * (1 - step * slope) ** (2 * rounds)
    terms: dict[str, Any] = {"gap": gap, "smoothness": 1, "gradient": slope, "step": step}
    delivered = np.ones((rounds, 1))
    literal = convergence_bound(delivered, **terms, variant="literal")
    return actual, literal, convergence_bound(delivered, **terms, pl=slope)


def test_literal_bound_is_violated() -> None:
    actual, literal, corrected = flat_quadratic()
    assert actual == pytest.approx(4.76e-4, rel=1e-3)
    assert float(literal.value[-1]) == pytest.approx(2.5e-9, rel=0.01)
    assert literal.holds.all()  # all that the paper asks for is given
    assert actual > 1.8e5 * float(literal.value[-1])
    assert corrected.holds.all()
    assert actual <= float(corrected.value[-1]) < 1.03 * actual


def test_literal_formula() -> None:
    delivered = np.array([[1, 1], [1, 0], [0, 0], [1, 1]])
    L, G, eta, lam, sigma, gap = 1.5, 0.7, 0.03, 3, 0.4, 2.0  # noqa: N806 - the paper's letters
    bound = convergence_bound(
        delivered, gap=gap, smoothness=L, gradient=G, step=eta, local_steps=lam, noise=sigma,
        variant="literal",
    )  # fmt: skip
    omega = 1 - eta * lam * L + 9 * eta**2 * L**2 * lam
    a1 = 6 * L * eta**2 * lam**2 + 2 * eta * lam
    a2 = 9 * 2 * L**3 * eta**4 * lam**4 * (sigma**2 + G**2)
    a3 = 1.5 * L * eta**2 * lam**2 * sigma**2 + 0.75 * L**3 * eta**2 * G**2 * lam**3 * 2 * 5
    shares, mean_age = [1, 0.5, 0, 1], [1, 1.5, 2.5, 1]
    expected = (
        omega**4 * gap
        + a1 * sum(omega ** (3 - t) * (1 - shares[t]) ** 2 * G**2 for t in (1, 2, 3))
        + a2 * sum(omega ** (3 - t) * mean_age[t] ** 2 for t in (1, 2, 3))
        + a3 * (1 - omega**4) / (1 - omega)
    )
    assert float(bound.value[-1]) == pytest.approx(expected, rel=1e-12)


def test_omega_and_its_condition() -> None:
    """λ for λ²: with η = 0.1, L = 1, λ = 10 the printed Ω contracts, the derived one explodes."""
    bound = convergence_bound(
        np.ones((2, 1)), gap=1, smoothness=1, gradient=1, step=0.1, local_steps=10,
        variant="literal",
    )  # fmt: skip
    assert float(bound.contraction) == pytest.approx(0.9)
    assert bound.holds.all()
    derived = 1 - 0.1 * 10 + 9 * 0.1**2 * 10**2
    assert derived == pytest.approx(9.0)
    assert not convergence_bound(
        np.ones((2, 1)), gap=1, smoothness=1, gradient=1, step=0.2, local_steps=10, pl=1
    ).holds.any()


def test_slack_of_the_printed_factor_k() -> None:
    """α2 has K (mean age)²; for twenty clients with geometric ages, 13.7 times the mean square."""
    clients, ages = 20, np.arange(1, 200.0)
    law = 0.5**ages
    mean, square = law @ ages, law @ ages**2
    printed = clients * (mean**2 + (square - mean**2) / clients)  # E[K (mean of K ages)²]
    assert printed / square == pytest.approx(13.667, abs=1e-3)
    assert mean**2 < square  # and (mean age)², which is enough, is below both


# -------------------------------------------------------------------------------------- the form


def test_runs_and_settings_broadcast() -> None:
    rng = np.random.default_rng(2)
    delivered = rng.random((10, 3, 4)) < 0.5
    steps = np.array([0.1, 0.2, 0.3])
    together = convergence_bound(
        delivered, gap=1, smoothness=1, gradient=1, step=steps, local_steps=2, noise=0.1, pl=0.5
    )
    assert together.value.shape == (11, 3)
    for run in range(3):
        alone = convergence_bound(
            delivered[:, run], gap=1, smoothness=1, gradient=1, step=steps[run], local_steps=2,
            noise=0.1, pl=0.5,
        )  # fmt: skip
        np.testing.assert_allclose(together.value[:, run], alone.value)
    np.testing.assert_allclose(
        together.errors["mismatch"],
        together.contraction * 0 + steps * (sum(together.mismatch.values())) ** 2,
    )


GOOD: dict[str, Any] = {"gap": 1, "smoothness": 1, "gradient": 1, "step": 0.1, "pl": 0.5}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pl": None}, "pl must be given"),
        ({"gap": -1}, "gap must be finite numbers >= 0, got -1"),
        ({"smoothness": 0}, "smoothness must be finite numbers > 0, got 0"),
        ({"step": math.inf}, "step must be finite numbers > 0, got inf"),
        ({"local_steps": 1.5}, "local_steps must be whole numbers >= 1, got 1.5"),
        ({"noise": [1, 2]}, r"noise must broadcast to the runs \(\) of delivered, got \(2,\)"),
        ({"variant": "paper"}, "variant must be 'corrected' or 'literal', got 'paper'"),
    ],
)
def test_bad_settings(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        convergence_bound(np.ones((3, 2)), **{**GOOD, **changes})


@pytest.mark.parametrize("delivered", [[1, 0], "yes", np.ones((3, 0)), [["a", "b"]]])
def test_bad_deliveries(delivered: Any) -> None:
    with pytest.raises(ParameterError, match="delivered must be yes or no"):
        convergence_bound(delivered, **GOOD)
