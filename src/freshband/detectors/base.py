"""The verbs every detector understands.

A detector's state watches ``n_channels`` independent streams of acknowledgements.
"""

from __future__ import annotations

from typing import Any

from freshband._jit import verb

__all__ = ["forget", "forget_all", "push", "since_change"]


@verb
def push(detector: Any, channel: int, outcome: int) -> bool:
    """Feed one 0/1 outcome of one channel; return whether it reveals a change.

    After an alarm `since_change` says what the stream showed since.
    """
    return False


@verb
def since_change(detector: Any, channel: int) -> tuple[float, float]:
    """Return how many outcomes a channel showed since the change last found, and the successes."""
    return 0.0, 0.0


@verb
def forget(detector: Any, channel: int) -> None:
    """Start one channel's stream afresh."""


@verb
def forget_all(detector: Any) -> None:
    """Start every channel's stream afresh."""
