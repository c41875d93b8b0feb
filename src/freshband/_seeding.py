"""One user seed, many independent streams.

Every random stream is ``SeedSequence(seed, spawn_key=(role, run))`` with a fixed number per role,
so a new role never shifts an old stream, runs are independent, and all policies of a run meet the
same channel environment.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from freshband.errors import ParameterError, shown


class Role(IntEnum):
    """The purpose of a random stream. Numbers are part of the file format: never reuse one."""

    CHANNEL_STRUCTURE = 0  # means, breakpoints, jamming plans
    CHANNEL_STATES = 1  # the Good/Bad draws themselves
    POLICY = 2  # scheduler and matching
    DATA = 3  # synthetic images, who holds which sample
    TRAINING = 4  # initial weights, batches
    CHURN = 5  # which clients are there
    ACKNOWLEDGEMENTS = 6  # which outcomes the server learns
    OUTAGES = 7  # which channels are there


def check_seed(seed: object) -> int:
    """Return ``seed`` as an int, or raise `ParameterError`."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ParameterError(f"seed must be an integer >= 0, got {shown(seed)}")
    return int(seed)


def sequence(seed: int, role: Role, run: int = 0) -> np.random.SeedSequence:
    """Return the seed sequence of one role in one run."""
    return np.random.SeedSequence(seed, spawn_key=(int(role), run))


def generator(seed: int, role: Role, run: int = 0) -> np.random.Generator:
    """Return the generator of one role in one run."""
    return np.random.default_rng(sequence(seed, role, run))
