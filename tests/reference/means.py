"""Historical means from a complete log: nothing is kept up to date, all is counted afresh."""

from __future__ import annotations

from typing import NamedTuple


class Heard(NamedTuple):
    """One acknowledgement."""

    t: int
    channel: int
    outcome: int


def entries(t: int, assignment: list[int], outcome: list[int]) -> list[Heard]:
    """What one round adds to the log: idle clients and unknown outcomes add nothing."""
    return [
        Heard(t, channel, x)
        for channel, x in zip(assignment, outcome, strict=True)
        if channel >= 0 and x >= 0
    ]


def tally(
    log: list[Heard], channel: int, now: int, window: int | None, discount: float | None
) -> tuple[float, float]:
    """Weight of all acknowledgements of a channel after round ``now``, and of the successes."""
    pulls = wins = 0.0
    for heard in log:
        if heard.channel != channel or (window is not None and heard.t <= now - window):
            continue
        weight = 1.0 if discount is None else discount ** (now - heard.t)
        pulls += weight
        wins += weight * heard.outcome
    return pulls, wins
