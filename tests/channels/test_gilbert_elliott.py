from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshband.channels import GilbertElliott
from freshband.errors import ParameterError
from tests.channels.margins import assert_mean, assert_share, draw, drawn

ROUNDS = 60_000


def in_a_loop(
    leave: Any, enter: Any, rounds: int, rng: np.random.Generator
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Draw the chains the slow and obvious way, from the same random numbers."""
    leave, enter = np.asarray(leave), np.asarray(enter)
    hidden = rng.random(len(leave)) < enter / (leave + enter)
    states = np.empty((rounds, len(leave)), np.uint8)
    for t in range(rounds):
        u = rng.random(len(leave))
        hidden = np.where(hidden, u < 1 - leave, u < enter)
        states[t] = hidden
    return states


probabilities = st.lists(st.tuples(st.floats(0, 1), st.floats(0.01, 1)), min_size=1, max_size=4)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(chains=probabilities, rounds=st.integers(1, 80), seed=st.integers(0, 1000))
def test_equals_a_loop_over_rounds(
    chains: list[tuple[float, float]], rounds: int, seed: int
) -> None:
    leave, enter = (list(column) for column in zip(*chains, strict=True))
    model = GilbertElliott(p_bad=leave, p_good=enter)
    rng = np.random.default_rng
    block = model.start(rounds, rng(0), rng(seed)).block(rounds)
    np.testing.assert_array_equal(block.states, in_a_loop(leave, enter, rounds, rng(seed)))


@pytest.mark.parametrize(
    ("leave", "enter"), [(0.05, 0.2), (0.9, 0.7), (0.5, 0.5), (1.0, 0.3), (0.02, 1.0)]
)
def test_transitions_have_the_given_probabilities(leave: float, enter: float) -> None:
    states = draw(GilbertElliott(p_bad=[leave], p_good=[enter]), ROUNDS).states[:, 0]
    good = states[:-1] == 1
    assert_share((states[1:][good] == 0).sum(), good.sum(), leave)
    assert_share((states[1:][~good] == 1).sum(), (~good).sum(), enter)


@pytest.mark.parametrize("mean", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("dwell", [1, 2.5, 20])
def test_the_correlation_time_is_the_dwell(mean: float, dwell: float) -> None:
    states = draw(GilbertElliott(means=[mean], dwell=dwell), ROUNDS).states[:, 0]
    good = states[:-1] == 1
    assert_share((states[1:][good] == 0).sum(), good.sum(), (1 - mean) / dwell)
    assert_share((states[1:][~good] == 1).sum(), (~good).sum(), mean / dwell)


def test_correlation_falls_geometrically() -> None:
    dwell, mean, channels = 5.0, 0.4, 400
    states = draw(GilbertElliott(means=[mean] * channels, dwell=dwell), 9).states.astype(float)
    for lag in (1, 4, 8):  # across many independent channels, so that plain margins hold
        both = (states[0] * states[lag]).sum()
        kept = (1 - 1 / dwell) ** lag
        assert_share(both, channels, mean * (kept + (1 - kept) * mean))


def test_the_long_run_means_are_honoured_from_the_first_round_on() -> None:
    means = [0.15, 0.5, 0.9]
    model = GilbertElliott(means=means, dwell=8)
    states = np.stack([draw(model, 12, run=run).states for run in range(1500)])
    for t in (0, 1, 11):  # started from the long-run law, every round has it
        for hits, mean in zip(states[:, t].sum(axis=0), means, strict=True):
            assert_share(hits, 1500, mean)


def test_success_rates_in_the_two_states() -> None:
    model = GilbertElliott(means=[0.5, 0.2], dwell=50, good_success=0.9, bad_success=0.1)
    states = np.stack([draw(model, 2, run=run).states for run in range(2500)])
    for channel, mean in enumerate((0.5, 0.2)):
        assert_share(states[:, 0, channel].sum(), 2500, mean)
        share = (mean - 0.1) / 0.8
        kept = 1 - 1 / 50
        both = share * (kept + (1 - kept) * share)  # good in both rounds
        one = share - both
        rest = 1 - both - 2 * one
        expected = both * 0.9**2 + 2 * one * 0.9 * 0.1 + rest * 0.1**2
        assert_share((states[:, 0, channel] & states[:, 1, channel]).sum(), 2500, expected)


def test_means_are_the_long_run_rates_and_never_the_hidden_state() -> None:
    model = GilbertElliott(p_bad=0.1, p_good=[0.3, 0.1], good_success=0.8, bad_success=0.4)
    block = draw(model, 500)
    np.testing.assert_allclose(block.means, np.tile([0.7, 0.6], (500, 1)))
    assert len(drawn(model, 500).breakpoints) == 0
    assert drawn(model, 500).changed.shape == (0, 2)


def test_certain_channels_stay_so() -> None:
    states = draw(GilbertElliott(means=[0, 1], dwell=3), 500).states
    assert not states[:, 0].any()
    assert states[:, 1].all()


def test_sure_flips_alternate() -> None:
    states = draw(GilbertElliott(n_channels=1, p_bad=1, p_good=1), 100).states[:, 0]
    assert (states[1:] != states[:-1]).all()


def test_drawn_means_are_uniform_in_their_range() -> None:
    means = draw(GilbertElliott(n_channels=2000, mean_low=0.2, mean_high=0.4), 1).means
    assert means.min() >= 0.2
    assert means.max() <= 0.4
    assert_mean(means, 0.3, 0.2 / np.sqrt(12))


def test_channels_are_independent() -> None:
    states = draw(GilbertElliott(means=[0.5] * 2000, dwell=20), 1).states[0].astype(bool)
    assert_share((states[::2] & states[1::2]).sum(), 1000, 0.25)


def test_the_number_of_channels_follows_from_any_list() -> None:
    assert GilbertElliott(means=[0.5, 0.5]).n_channels == 2
    assert GilbertElliott(p_bad=0.1, p_good=[0.1, 0.2, 0.3]).n_channels == 3
    assert GilbertElliott(p_bad=[0.1], p_good=0.2).n_channels == 1
    assert GilbertElliott(p_bad=0.1, p_good=0.2).n_channels == 5


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"dwell": 0.5}, "dwell must be a number >= 1, got 0.5"),
        ({"dwell": float("inf")}, "dwell must be a number >= 1, got inf"),
        ({"p_bad": 0.1}, "p_good must be given too: p_bad and p_good go together"),
        ({"p_good": 0.1}, "p_bad must be given too: p_bad and p_good go together"),
        ({"p_bad": 0, "p_good": 0}, "p_bad and p_good must not both be 0, got 0 and 0"),
        (
            {"p_bad": [0.1, 0], "p_good": [0.2, 0]},
            "p_bad and p_good must not both be 0, got 0 and 0",
        ),
        (
            {"p_bad": [0.1, 0.2], "p_good": [0.2]},
            "p_good must have n_channels = 2 columns, got 1",
        ),
        (
            {"p_bad": 0.1, "p_good": 0.1, "dwell": 3},
            "dwell must be left out when p_bad is given, got 3.0",
        ),
        (
            {"p_bad": 0.1, "p_good": 0.1, "means": [0.5]},
            "means must be left out when p_bad is given, got (0.5,)",
        ),
        (
            {"p_bad": 0.1, "p_good": 0.1, "mean_low": 0.5},
            "mean_low must be left out when p_bad is given, got 0.5",
        ),
        (
            {"means": [0.5], "mean_high": 0.8},
            "mean_high must be left out when means is given, got 0.8",
        ),
        (
            {"good_success": 0.3, "bad_success": 0.3},
            "bad_success must be below good_success = 0.3, got 0.3",
        ),
        ({"good_success": 1.5}, "good_success must be a number in [0, 1], got 1.5"),
        (
            {"means": [0.5, 0.95], "good_success": 0.9},
            "means must be in [bad_success, good_success] = [0.0, 0.9], got 0.95",
        ),
        (
            {"bad_success": 0.2},
            "mean_low must be in [bad_success, good_success] = [0.2, 1.0], got 0.1",
        ),
        (
            {"good_success": 0.8},
            "mean_high must be in [bad_success, good_success] = [0.0, 0.8], got 0.9",
        ),
    ],
)
def test_bad_parameters(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        GilbertElliott(**params)
    assert str(caught.value) == message


@pytest.mark.parametrize("bad", [1.5, -1, "often", [0.5, 2], [], float("nan"), True])
def test_bad_probabilities_name_the_parameter(bad: Any) -> None:
    with pytest.raises(ParameterError, match=r"^p_bad must be .*\[0, 1\].*, got "):
        GilbertElliott(p_bad=bad, p_good=0.5)
