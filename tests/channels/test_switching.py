from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from freshband.channels import Switching
from freshband.channels.streams import _FRAME
from freshband.errors import ParameterError
from tests.channels.margins import assert_mean, assert_share, draw, drawn

ROUNDS = 40_000


def test_a_switch_happens_with_the_hazard() -> None:
    stream = drawn(Switching(n_channels=3, hazard=0.02), ROUNDS)
    assert_share(len(stream.breakpoints), ROUNDS - 1, 0.02)
    assert stream.changed.all()


def test_regimes_are_geometric_in_length() -> None:
    hazard = 0.05
    gaps = np.diff(drawn(Switching(hazard=hazard), ROUNDS).breakpoints)
    assert_mean(gaps, 1 / hazard, np.sqrt(1 - hazard) / hazard)
    assert_share((gaps <= 10).sum(), len(gaps), 1 - (1 - hazard) ** 10)


def test_p_change_is_the_share_of_channels_that_take_part() -> None:
    stream = drawn(Switching(n_channels=4, hazard=0.05, p_change=0.25), ROUNDS)
    assert_share(stream.changed.sum(), 4 * (ROUNDS - 1), 0.05 * 0.25)
    assert_share(len(stream.breakpoints), ROUNDS - 1, 0.05 * (1 - 0.75**4))


def test_channels_of_their_own_switch_with_the_hazard_and_apart() -> None:
    stream = drawn(Switching(n_channels=4, hazard=0.02, per_channel=True), ROUNDS)
    for switches in stream.changed.sum(axis=0):
        assert_share(switches, ROUNDS - 1, 0.02)
    together = (stream.changed[:, 0] & stream.changed[:, 1]).sum()
    assert_share(together, ROUNDS - 1, 0.02**2)


def test_a_new_frame_is_no_switch() -> None:
    model = Switching(n_channels=1, hazard=0.001)
    hits = sum(_FRAME + 1 in drawn(model, _FRAME + 1, run=run).breakpoints for run in range(200))
    assert_share(hits, 200, 0.001)


def test_certain_and_impossible_hazards() -> None:
    assert len(drawn(Switching(hazard=0.0), 10_000).breakpoints) == 0
    for per_channel in (False, True):
        stream = drawn(Switching(hazard=1.0, per_channel=per_channel), 10_000)
        assert stream.breakpoints.tolist() == list(range(2, 10_001))
        assert stream.changed.all()


def test_means_are_uniform_in_their_range() -> None:
    means = draw(Switching(hazard=1.0, mean_low=0.4, mean_high=0.6), 4000).means
    assert means.min() >= 0.4
    assert means.max() <= 0.6
    assert_mean(means, 0.5, 0.2 / np.sqrt(12))


def test_the_means_are_honoured() -> None:
    block = draw(Switching(n_channels=2, hazard=0.01), ROUNDS)
    spread = np.sqrt((block.means * (1 - block.means)).sum())
    assert abs(block.states.sum() - block.means.sum()) < 5 * spread


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"hazard": -0.1}, "hazard must be a number in [0, 1], got -0.1"),
        ({"hazard": 2}, "hazard must be a number in [0, 1], got 2"),
        ({"hazard": float("nan")}, "hazard must be a number in [0, 1], got nan"),
        ({"p_change": 1.01}, "p_change must be a number in [0, 1], got 1.01"),
        ({"per_channel": "some"}, "per_channel must be true or false, got 'some'"),
        (
            {"per_channel": True, "p_change": 0.5},
            "p_change must be left out when per_channel is given, got 0.5",
        ),
    ],
)
def test_bad_parameters(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        Switching(**params)
    assert str(caught.value) == message
