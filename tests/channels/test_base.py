from __future__ import annotations

import numpy as np
import pytest

from freshband._seeding import Role, generator
from freshband.channels import Piecewise, Stationary, build, open_air, registry
from freshband.channels.base import _at_most
from freshband.errors import ParameterError, UnknownNameError


def test_names_are_what_the_command_line_takes() -> None:
    assert {"stationary", "gilbert-elliott", "besson-1", "fig3-extreme"} <= set(registry)
    assert registry["piecewise"] is Piecewise
    assert registry.name_of(Piecewise) == "piecewise"


def test_build_takes_a_mapping_and_keywords() -> None:
    model = build("piecewise", {"n_channels": 3, "n_breakpoints": 1}, n_breakpoints=2)
    assert model == Piecewise(n_channels=3, n_breakpoints=2)


def test_build_returns_a_model_as_it_is() -> None:
    model = Stationary(means=[0.5])
    assert build(model) is model


def test_build_refuses_parameters_next_to_a_model() -> None:
    with pytest.raises(ParameterError, match=r"got \['n_channels'\] with a ready Stationary"):
        build(Stationary(), n_channels=3)


@pytest.mark.parametrize("bad", [3, None, object(), Stationary, [Stationary()]])
def test_build_refuses_what_is_no_model(bad: object) -> None:
    with pytest.raises(ParameterError, match="channels must be a name or a channel model, got"):
        build(bad)  # type: ignore[arg-type]


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'gilbert-elliott'"):
        build("gilbert-eliot")


def test_open_air_uses_the_two_roles_of_the_run() -> None:
    expected = Stationary().start(
        9,
        generator(7, Role.CHANNEL_STRUCTURE, 2),
        generator(7, Role.CHANNEL_STATES, 2),
    )
    np.testing.assert_array_equal(
        open_air("stationary", 9, seed=7, run=2).block(9).states, expected.block(9).states
    )


@pytest.mark.parametrize(
    ("rounds", "seed", "run", "message"),
    [
        (0, 0, 0, "rounds must be a whole number >= 1, got 0"),
        (1.5, 0, 0, "rounds must be a whole number >= 1, got 1.5"),
        (5, -1, 0, "seed must be an integer >= 0, got -1"),
        (5, "a", 0, "seed must be an integer >= 0, got 'a'"),
        (5, 0, -1, "run must be a whole number >= 0, got -1"),
    ],
)
def test_open_air_checks_its_numbers(rounds: int, seed: int, run: int, message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        open_air("stationary", rounds, seed, run)
    assert str(caught.value) == message


def test_a_default_number_of_rounds_is_no_more_than_a_recording_lasts() -> None:
    recorded = build("table", states=[[1, 0], [0, 1], [1, 1]])
    assert _at_most(20_000, recorded) == 3
    assert _at_most(2, recorded) == 2
    assert _at_most(20_000, build("table", states=[[1, 0]], wrap=True)) == 20_000
    assert _at_most(20_000, build("piecewise")) == 20_000
