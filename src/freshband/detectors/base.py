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

    After an alarm, `since_change` returns the outcomes since the change.
    """
    return False


@verb
def since_change(detector: Any, channel: int) -> tuple[float, float]:
    """Return a channel's numbers of outcomes and successes since the last change found."""
    return 0.0, 0.0


@verb
def forget(detector: Any, channel: int) -> None:
    """Restart one channel's stream."""


@verb
def forget_all(detector: Any) -> None:
    """Restart every channel's stream."""
