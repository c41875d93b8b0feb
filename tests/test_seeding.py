"""Seeds: one of the user's, many independent streams that never shift."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from freshband._seeding import Role, check_seed, generator, sequence
from freshband.errors import ParameterError
from tests.simulation.refusing import refused


def test_streams_are_reproducible() -> None:
    for role in Role:
        one, other = (generator(7, role, run=3).random(5) for _ in range(2))
        np.testing.assert_array_equal(one, other)


def test_streams_of_seeds_roles_and_runs_differ() -> None:
    keys = itertools.product((0, 1, 2**40), Role, (0, 1, 1000))
    first = {generator(seed, role, run).integers(2**62) for seed, role, run in keys}
    assert len(first) == 3 * len(Role) * 3


def test_streams_of_roles_and_runs_are_uncorrelated() -> None:
    drawn = [generator(0, role, run).random(20_000) for role in Role for run in range(3)]
    correlation = np.corrcoef(drawn) - np.eye(len(drawn))
    assert np.abs(correlation).max() < 5 / math.sqrt(20_000)


def test_numbers_of_roles_never_change() -> None:
    """Saved seeds mean the same air and the same choices in every version."""
    assert {role.name: role.value for role in Role}.items() >= {
        "CHANNEL_STRUCTURE": 0,
        "CHANNEL_STATES": 1,
        "POLICY": 2,
    }.items()
    assert len({role.value for role in Role}) == len(Role.__members__)


def test_streams_never_change() -> None:
    assert sequence(5, Role.POLICY, 2).spawn_key == (2, 2)
    assert generator(5, Role.POLICY, 2).integers(10**9) == np.random.default_rng(
        np.random.SeedSequence(5, spawn_key=(2, 2))
    ).integers(10**9)


def test_nothing_touches_the_global_generator() -> None:
    np.random.seed(3)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # type: ignore[index,union-attr]  # noqa: NPY002
    generator(0, Role.POLICY).random(100)
    after = np.random.get_state()[1]  # type: ignore[index]  # noqa: NPY002
    np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize("seed", [0, 5, 2**64, 10**40, np.int64(5), np.uint8(7)])
def test_good_seeds(seed: Any) -> None:
    assert check_seed(seed) == seed
    assert type(check_seed(seed)) is int


def test_bad_seeds() -> None:
    wrong: list[Any] = [-1, 1.0, 0.5, math.nan, True, np.True_, "1", b"1", None, [1], np.array(1)]
    for seed in [*wrong, np.int64(-1), np.zeros((30, 30)), -(10**5000)]:
        with refused(ParameterError, "^seed must be an integer >= 0, got "):
            check_seed(seed)
