"""Five-sigma margins for counts and means, and a short way to draw air."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from freshband.channels import Block, ChannelModel, Stream, open_air


def assert_share(hits: float, trials: float, probability: float) -> None:
    """Hold a number of successes against its binomial law."""
    expected = trials * probability
    margin = 5 * math.sqrt(trials * probability * (1 - probability))
    assert abs(hits - expected) <= margin, f"{hits} of {trials}, expected {expected} +- {margin}"


def assert_mean(values: Any, mean: float, deviation: float) -> None:
    """Hold the average of independent values against their mean."""
    margin = 5 * deviation / math.sqrt(np.size(values))
    assert abs(np.mean(values) - mean) <= margin, f"{np.mean(values)}, expected {mean} +- {margin}"


def draw(
    model: str | ChannelModel, rounds: int, seed: int = 0, run: int = 0, clients: int | None = None
) -> Block:
    """Draw a whole run in one block."""
    return open_air(model, rounds, seed, run, clients).block(rounds)


def drawn(
    model: str | ChannelModel, rounds: int, seed: int = 0, run: int = 0, clients: int | None = None
) -> Stream:
    """Return a stream drawn to its end."""
    stream = open_air(model, rounds, seed, run, clients)
    stream.block(rounds)
    return stream
