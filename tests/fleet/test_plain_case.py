"""Where nothing new is used, the loop for any fleet plays the paper's problem, bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from freshband.simulation._loop import Tally
from tests.playing import (
    PLAIN,
    assert_fleet_steps_are_the_same,
    assert_same_arrays,
    draw,
    every_policy,
    play,
    play_fleet,
    states_of,
)

ROUNDS = 150
UNLOGGED = ("assignment_log", "outcome_log")  # kept by the plain loop only


@every_policy
def test_the_fleet_loop_equals_the_plain_loop(policy: str) -> None:
    plain = play(policy, draw(ROUNDS), engine=PLAIN)
    fleet = play_fleet(policy, ROUNDS, compiled=False)
    expected = {path: a for path, a in plain.arrays().items() if not path.startswith("desk.")}
    found = states_of(fleet)
    assert_same_arrays({path: found[path] for path in expected}, expected)
    assert fleet.rng.bit_generator.state == plain.rng.bit_generator.state
    for field in (name for name in Tally._fields if name not in UNLOGGED):
        measured, wanted = getattr(fleet.tally, field), getattr(plain.tally, field)
        for name in wanted.dtype.names or [...]:
            np.testing.assert_array_equal(measured[name], wanted[name], err_msg=field)
    assert fleet.exposure == ROUNDS * len(plain.desk.ages)
    assert (fleet.fleet.doubts.alive == 1.0).all()
    np.testing.assert_array_equal(ROUNDS - fleet.truth.last + 1, plain.desk.ages)


@pytest.mark.parametrize("policy", ["cucb", "m-exp3+aa-sum"])
def test_the_fleet_loop_compiled_and_stepwise(policy: str, tmp_path: Path) -> None:
    assert_fleet_steps_are_the_same(policy, tmp_path)
