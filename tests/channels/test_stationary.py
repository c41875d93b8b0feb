from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from freshband.channels import Stationary
from freshband.errors import ParameterError
from tests.channels.margins import assert_mean, assert_share, draw


def test_the_means_are_honoured() -> None:
    means = [0.05, 0.5, 0.93]
    block = draw(Stationary(means=means), 50_000)
    for channel, mean in enumerate(means):
        assert_share(block.states[:, channel].sum(), 50_000, mean)
    np.testing.assert_array_equal(block.means, np.tile(means, (50_000, 1)))


def test_rounds_and_channels_are_independent() -> None:
    states = draw(Stationary(means=[0.5, 0.5]), 50_000).states
    assert_share((states[1:, 0] == states[:-1, 0]).sum(), 49_999, 0.5)
    assert_share((states[:, 0] == states[:, 1]).sum(), 50_000, 0.5)


def test_drawn_means_are_uniform_in_their_range() -> None:
    model = Stationary(n_channels=2000, mean_low=0.2, mean_high=0.6)
    means = draw(model, 1).means
    assert means.min() >= 0.2
    assert means.max() <= 0.6
    assert_mean(means, 0.4, 0.4 / np.sqrt(12))
    assert_share((means < 0.3).sum(), 2000, 0.25)


def test_every_run_has_means_of_its_own() -> None:
    assert not np.array_equal(
        draw("stationary", 1, run=0).means, draw("stationary", 1, run=1).means
    )


def test_a_range_of_one_point_is_that_point() -> None:
    assert (draw(Stationary(mean_low=0.3, mean_high=0.3), 2).means == 0.3).all()


def test_the_number_of_channels_follows_from_the_means() -> None:
    assert Stationary(means=[0.1, 0.2, 0.3]).n_channels == 3
    assert Stationary(means=np.array([0.1, 1])).means == (0.1, 1.0)
    assert Stationary().n_channels == 5


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_channels": 0}, "n_channels must be a whole number >= 1, got 0"),
        ({"n_channels": 2.5}, "n_channels must be a whole number >= 1, got 2.5"),
        ({"n_channels": True}, "n_channels must be a whole number >= 1, got True"),
        ({"n_channels": "many"}, "n_channels must be a whole number >= 1, got 'many'"),
        ({"mean_low": -0.1}, "mean_low must be a number in [0, 1], got -0.1"),
        ({"mean_high": 1.1}, "mean_high must be a number in [0, 1], got 1.1"),
        ({"mean_low": float("nan")}, "mean_low must be a number in [0, 1], got nan"),
        (
            {"mean_low": 0.5, "mean_high": 0.2},
            "mean_low must be at most mean_high = 0.2, got 0.5",
        ),
        ({"means": [0.5, 1.5]}, "means must be a list of numbers in [0, 1], got 1.5"),
        ({"means": [0.5, float("nan")]}, "means must be a list of numbers in [0, 1], got nan"),
        ({"means": []}, "means must be a list of numbers in [0, 1], got []"),
        ({"means": 0.5}, "means must be a list of numbers in [0, 1], got 0.5"),
        ({"means": ["a", "b"]}, "means must be a list of numbers in [0, 1], got ['a', 'b']"),
        ({"means": [[0.5]]}, "means must be a list of numbers in [0, 1], got [[0.5]]"),
        ({"means": [0.5, None]}, "means must be a list of numbers in [0, 1], got [0.5, None]"),
        (
            {"means": [0.5, [0.5, 0.1]]},
            "means must be a list of numbers in [0, 1], got rows of different lengths",
        ),
        (
            {"means": [0.5], "n_channels": 2},
            "means must have n_channels = 2 columns, got 1",
        ),
        (
            {"means": [0.5], "mean_low": 0.2},
            "mean_low must be left out when means is given, got 0.2",
        ),
    ],
)
def test_bad_parameters(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        Stationary(**params)
    assert str(caught.value) == message


def test_long_values_are_cut_short_in_messages() -> None:
    with pytest.raises(ParameterError) as caught:
        Stationary(means=["x"] * 1000)  # type: ignore[list-item]
    assert len(str(caught.value)) < 130
