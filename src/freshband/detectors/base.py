"""The verbs every detector understands.

A detector's state watches ``n_channels`` independent streams of acknowledgements.
"""

from __future__ import annotations

from typing import Any, TypeVar

from freshband._jit import verb

_StateType = TypeVar("_StateType", bound=type)


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


def forgets_one_by_one(state_type: _StateType) -> _StateType:
    """Let a state with a row per channel in ``book`` forget all of them in turn (decorator)."""

    @forget_all.register(state_type)
    def _forget_all(detector: Any) -> None:
        for channel in range(len(detector.book)):
            forget(detector, channel)

    return state_type
