"""Round-robin: channels take turns, whatever their outcomes."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from freshband.parameters import Parameters
from freshband.schedulers.base import Matchings, register, select, select_available
from freshband.schedulers.counts import Counts, learns_means, start_counts
from freshband.states import between, declare


@learns_means
class _RoundRobinState(NamedTuple):
    """Whose turn it is; only `+age` and `+aa` use the counts."""

    counts: Counts
    turn: NDArray[np.int64]  # (1,) the channel that comes next


declare(_RoundRobinState, turn=between(0))


@select.register(_RoundRobinState)
def _select(scheduler: _RoundRobinState, t: int, ages: Any, rng: Any, chosen: Any) -> None:
    n_channels = len(scheduler.counts.pulls)
    for j in range(len(chosen)):
        chosen[j] = (scheduler.turn[0] + j) % n_channels
    scheduler.turn[0] = (scheduler.turn[0] + len(chosen)) % n_channels


@select_available.register(_RoundRobinState)
def _select_available(
    scheduler: _RoundRobinState,
    t: int,
    ages: Any,
    rng: Any,
    available: Any,
    scores: Any,
    chosen: Any,
) -> bool:
    channel = scheduler.turn[0] % len(available)
    place = 0
    while place < len(chosen):  # never more than are available
        if available[channel] == 1:
            chosen[place] = channel
            place += 1
        channel = (channel + 1) % len(available)
    scheduler.turn[0] = channel
    return True


@register("round-robin")
@final
class RoundRobin(Parameters):
    """Channels in turn, matched in turn: a baseline that learns nothing and needs no chance.

    Round t uses the M channels after those of round t - 1, in a circle. A channel that is missing
    is passed over.

    Notes
    -----
    Assumes nothing. It meets every channel equally often, and is the worst case of a sweeping
    jammer that has its speed.

    **Deviations.** Not in the paper.

    Examples
    --------
    >>> from freshband.schedulers.base import select
    >>> state = RoundRobin().start(2, 5, np.random.default_rng(0), None)
    >>> chosen = np.zeros(2, np.int64)
    >>> for t in range(1, 4):
    ...     select(state, t, None, None, chosen)
    ...     print(chosen)
    [0 1]
    [2 3]
    [4 0]
    """

    matchings: ClassVar[Matchings] = {"default": "rotate"}

    def start(
        self, n_clients: int, n_channels: int, rng: np.random.Generator, horizon: int | None
    ) -> _RoundRobinState:
        """Allocate the state."""
        return _RoundRobinState(start_counts(n_clients, n_channels), np.zeros(1, np.int64))
