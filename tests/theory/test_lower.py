"""Theorems 2 and 4: the steps of their proofs at extremal cases (E11, E13)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshband.errors import ParameterError
from freshband.simulation import simulate
from freshband.theory import (
    adversarial_lower_bound,
    piecewise_lower_bound,
    segments_lower_bound,
)
from tests.theory.margins import needs_compiler, standard_error


def information(gap: float) -> float:
    return -math.log(1 - 4 * gap**2)


# ------------------------------------------------------------------- change of measure, (64), (71)


def most_any_count_can_gain(samples: int, gap: float) -> float:
    """max over f in [0, 1] of E[f] at mean ½ + ε less E[f] at ½, exactly: total variation."""
    ones = np.arange(samples + 1)
    chance = np.array([math.comb(samples, k) for k in ones]) * 0.5**samples
    tilt = (1 + 2 * gap) ** ones * (1 - 2 * gap) ** (samples - ones)
    return float(np.maximum(chance * tilt - chance, 0).sum())


@given(st.integers(1, 200), st.floats(0.001, 0.49))
def test_seeing_samples_changes_little(samples: int, gap: float) -> None:
    assert most_any_count_can_gain(samples, gap) <= 0.5 * math.sqrt(samples * information(gap))


def test_change_of_measure_is_attained() -> None:
    gained, granted = most_any_count_can_gain(1, 0.01), 0.5 * math.sqrt(information(0.01))
    assert gained == pytest.approx(0.01, rel=1e-12)
    assert 0.999 * granted < gained <= granted  # nothing smaller than ½ would do


# ------------------------------------------------------------------------------- sum of roots, (72)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=12))
def test_a_sum_of_roots(x: list[float]) -> None:
    assert sum(map(math.sqrt, x)) <= math.sqrt(len(x) * sum(x)) * (1 + 1e-12) + 1e-12


def test_sum_of_roots_is_attained_by_a_policy_that_treats_intervals_alike() -> None:
    x = [7.0] * 10
    roots = sum(map(math.sqrt, x))
    assert roots == pytest.approx(math.sqrt(10 * sum(x)), rel=1e-12)
    assert roots > 3 * math.sqrt(sum(x))  # what (72) prints


def plays(rounds: int, mean: float, patience: int) -> float:
    """Expected plays of a policy that leaves a channel once it lost that often more than it won."""
    start = rounds + patience  # positions: wins less losses
    law = np.zeros(2 * start + 1)
    law[start] = 1.0
    total = 0.0
    for _ in range(rounds):
        total += law.sum()
        law = np.concatenate([[0.0], law[:-1]]) * mean + np.concatenate([law[1:], [0.0]]) * (
            1 - mean
        )
        law[: start - patience + 1] = 0.0
    return float(total)


@pytest.mark.parametrize(("channels", "rounds", "patience"), [(10, 10_000, 2), (20, 20_000, 1)])
def test_a_policy_that_refutes_step_72(channels: int, rounds: int, patience: int) -> None:
    """One client. In each interval it tries the special channel until that looks bad."""
    length, gap = rounds // channels, math.sqrt(channels / rounds)
    still, moved = plays(length, 0.5, patience), plays(length, 0.5 + gap, patience)
    assert channels * still <= length  # it does what the theorem assumes of policies
    printed = length / channels * (1 + 0.5 * math.sqrt(length * information(gap)))
    assert moved > 1.2 * printed  # and sees more of the channel than (72) and (73) allow
    proved = length / channels + length / 2 * math.sqrt(length / channels * information(gap))
    assert moved <= proved
    assert moved <= still + length / 2 * math.sqrt(still * information(gap))
    # what the two bounds make of it
    factor = gap / (0.5 + gap)
    literal = float(piecewise_lower_bound(1, channels, rounds, "literal").value)
    assert literal == pytest.approx(factor * (length - printed), rel=1e-12)
    corrected = float(piecewise_lower_bound(1, channels, rounds).value)
    end = (0.5 - gap) / (0.5 + gap)
    assert corrected == pytest.approx(factor * (length - proved - end), rel=1e-12)
    assert factor * (length - moved) < literal  # the printed chain ends above its own start
    assert factor * (length - moved) >= corrected


def test_piecewise_values() -> None:
    literal = piecewise_lower_bound(2, 5, 20_000, "literal")
    assert float(literal.value) == pytest.approx(105.0, abs=0.05)
    corrected = piecewise_lower_bound(2, 5, 20_000)
    assert float(corrected.value) == pytest.approx(61.7, abs=0.05)
    assert corrected.failing == ["every policy"]
    assert piecewise_lower_bound(1, 5, 20_000).holds.all()
    few = piecewise_lower_bound(1, 2, 20_000)
    assert float(few.value) == 0  # needs N >= 3
    assert "n_channels >= 3" in few.failing
    large = float(piecewise_lower_bound(1, 9, 10**9).value)
    limit = 2 * math.sqrt(10**9 / 9) * (1 - 1 / 9 - 1 / 3)
    assert large == pytest.approx(limit, rel=1e-3)


def test_piecewise_bound_falls_with_the_number_of_channels_and_segments_bound_does_not() -> None:
    channels = np.array([20, 40, 80, 160])
    assert (np.diff(piecewise_lower_bound(2, channels, 10**6).value) < 0).all()
    assert (np.diff(segments_lower_bound(2, channels, 10**6, 2).value) > 0).all()


# ------------------------------------------------------------------------------------ Theorem 2


def test_adversarial_values() -> None:
    """3/8 (N-M)²/N² √(NT), printed and proved; 1/2 with the best ε."""
    for clients, channels in ((2, 5), (1, 2), (4, 6), (20, 30)):
        order = (channels - clients) ** 2 / channels**2 * math.sqrt(channels * 1e9)
        for variant in ("literal", "corrected"):
            value = adversarial_lower_bound(clients, channels, 10**9, variant).value
            assert float(value) / order == pytest.approx(3 / 8, rel=1e-3)
        best = adversarial_lower_bound(clients, channels, 10**9, epsilon="best").value
        assert float(best) / order == pytest.approx(1 / 2, rel=1e-3)
    assert float(adversarial_lower_bound(2, 5, 20_000, "literal").value) == pytest.approx(
        42.6, abs=0.05
    )


def test_the_end_of_the_run_costs_next_to_nothing() -> None:
    rounds = np.array([100, 1000, 20_000])
    literal = adversarial_lower_bound(2, 5, rounds, "literal").value
    corrected = adversarial_lower_bound(2, 5, rounds).value
    gap = 3 / (8 * np.sqrt(5 * rounds))
    np.testing.assert_allclose(
        literal - corrected, 2 * gap / (0.5 + gap) * (0.5 - gap) / (0.5 + gap)
    )
    assert (corrected > 0.97 * literal).all()


def test_best_epsilon_is_best() -> None:
    grid = np.linspace(0.0005, 0.02, 400)
    values = adversarial_lower_bound(2, 5, 20_000, epsilon=grid).value
    best = float(adversarial_lower_bound(2, 5, 20_000, epsilon="best").value)
    assert best == pytest.approx(values.max(), rel=1e-3)


def test_nothing_to_learn_and_too_few_rounds() -> None:
    assert float(adversarial_lower_bound(3, 3, 1000).value) == 0
    short = adversarial_lower_bound(1, 50, 2)
    assert (float(short.value), short.failing) == (0.0, ["epsilon < 1/2"])


def test_segments() -> None:
    one = adversarial_lower_bound(2, 5, 20_000).value
    assert float(segments_lower_bound(2, 5, 20_000, 1).value) == float(one)
    six = segments_lower_bound(2, 5, 20_000, 6).value
    assert float(six) == pytest.approx(6 * float(adversarial_lower_bound(2, 5, 3333).value))
    ratio = (
        segments_lower_bound(2, 5, 10**8, [4, 16]).value
        / segments_lower_bound(2, 5, 10**8, 1).value
    )
    np.testing.assert_allclose(ratio, [2, 4], rtol=1e-3)


@needs_compiler
def test_policies_on_the_hard_air() -> None:
    """The good set is random in every run, so the mean is over all sets, as in the proof."""
    rounds = 100
    result = simulate(
        "hard-stationary", ["random", "cucb", "thompson"], clients=2, rounds=rounds, runs=2000,
        seed=11, points=1, threads=1, progress=False,
    )  # fmt: skip
    bound = float(adversarial_lower_bound(2, 5, rounds).value)
    for regret in result.regret.values:
        assert regret.mean() > bound + 5 * standard_error(regret)


def test_shapes_broadcast() -> None:
    assert adversarial_lower_bound([[1], [2]], [5, 6, 7], 1000).value.shape == (2, 3)
    assert piecewise_lower_bound([[1], [2]], [5, 6, 7], 1000).holds.shape == (2, 3)
    assert segments_lower_bound(2, 5, [1000, 2000], [[1], [2]]).value.shape == (2, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: adversarial_lower_bound(3, 2, 10), "n_clients must be at most n_channels = 2"),
        (lambda: adversarial_lower_bound(1, 2, 0), "rounds must be whole numbers >= 1"),
        (lambda: adversarial_lower_bound(1, 2, 9, epsilon=0.5), r"epsilon must be 'paper', 'best'"),
        (lambda: adversarial_lower_bound(1, 2, 9, epsilon="small"), "epsilon must be 'paper'"),
        (lambda: segments_lower_bound(1, 2, 10, 11), "n_segments must be at most rounds = 10"),
        (lambda: piecewise_lower_bound(1, 2, 10, "safe"), "variant must be 'corrected' or"),  # type: ignore[arg-type]
    ],
)
def test_bad_input(call: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        call()
