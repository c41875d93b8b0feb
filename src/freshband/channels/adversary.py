"""Air that reacts to the clients: the part of a channel model that is played with the round.

A block of air is drawn before anybody transmits, so it cannot depend on what clients do. An
adversary that reacts gives its *free air*, what the channels do if it leaves them alone, as blocks,
and a state: before every round the verb `react` changes that round, knowing the assignment of the
round before. Every policy, oracles included, plays its own game: all meet the same free air, and
each has a state of its own, which answers its own transmissions.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from freshband._jit import verb
from freshband.channels.base import ChannelModel
from freshband.states import _check_state


class Still(NamedTuple):
    """The state of air that does not react."""

    nothing: NDArray[np.uint8]  # (0,): a state holds at least one array


_STILL = Still(np.zeros(0, np.uint8))


@runtime_checkable
class ReactingModel(ChannelModel, Protocol):
    """A channel model that reacts: its streams give the free air."""

    def start_reacting(self) -> Any:
        """Allocate the state, a NamedTuple of arrays, for which `react` is registered."""
        ...


@verb
def react(air: Any, t: int, assignment: Any, states: Any, means: Any) -> None:
    """Change the ``states`` and ``means`` of round ``t`` >= 1, shapes (N,), in place.

    ``assignment``, shape (M,), is that of round t - 1, -1 for idle clients; it is not read in
    round 1. By default nothing changes.
    """


def start_reacting(model: ChannelModel) -> Any:
    """Return the state with which a model reacts to one policy in one run; mostly `Still`.

    Blocks are shared by the policies of a run: copy one before `react` changes it, unless the state
    is `Still`.

    Examples
    --------
    >>> from freshband.channels import build
    >>> type(start_reacting(build("piecewise"))).__name__
    'Still'
    """
    if not hasattr(type(model), "start_reacting"):  # of a model itself, pydantic asks long
        return _STILL
    state = cast(ReactingModel, model).start_reacting()
    _check_state(type(model).__name__, state)
    return state
