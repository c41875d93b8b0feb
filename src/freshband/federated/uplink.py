"""What "delivered" means: over simulated channels, or before the deadline on a real link.

An uplink turns what the server has in hand into acknowledgements, and these are all the scheduler
ever sees.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from freshband.channels.base import ChannelModel, Stream, build, open_air
from freshband.errors import ParameterError, SequenceError, shown

__all__ = ["DeadlineUplink", "SimulatedUplink", "Uplink"]


@runtime_checkable
class Uplink(Protocol):
    """Decides which updates got through; see `SimulatedUplink` and `DeadlineUplink`."""

    @property
    def n_channels(self) -> int:
        """The number of channels, N of the paper."""
        ...

    @property
    def deadline(self) -> float:
        """The longest time a round waits for answers, in seconds."""
        ...

    @property
    def waits(self) -> bool:
        """Whether a round also waits for updates that are overdue from earlier ones."""
        ...

    @property
    def resends(self) -> bool:
        """Whether a client whose update is overdue is asked to send it again, on a new channel."""
        ...

    def acknowledge(
        self, round: int, assignment: NDArray[np.int64], arrived: NDArray[np.bool_]
    ) -> Sequence[bool | None]:
        """Say of each client whether its update got through in this round.

        Parameters
        ----------
        round : int
            Counted from 1; asked for in ascending order.
        assignment : int64 array, shape (n_clients,)
            Channel of each client, -1 for none.
        arrived : bool array, shape (n_clients,)
            Whose update reached the server by the end of the round.

        Returns
        -------
        sequence of bool or None, shape (n_clients,)
            True delivered, which takes ``arrived``, False lost, None unknown.
        """
        ...


class SimulatedUplink:
    """Updates reach the server over Flower and count once a simulated channel lets them through.

    The server keeps what it has in hand until then, as the client of the paper keeps its update.
    With the settings of ``freshband train`` the run is the same, round for round.

    Parameters
    ----------
    channels : str or ChannelModel
        The channel environment.
    rounds : int >= 1
        The number of rounds T.
    seed, run : int >= 0, default 0
        The same numbers give the same channel states.
    deadline : float > 0, default 600
        Seconds to wait for a client's training; a client that takes longer counts as unknown.

    Examples
    --------
    >>> uplink = SimulatedUplink("piecewise", rounds=12, seed=1)
    >>> uplink.acknowledge(1, np.array([0, 2]), np.array([True, True]))
    [True, False]
    >>> uplink.acknowledge(2, np.array([0, 3]), np.array([True, False]))  # nothing to carry
    [True, None]
    """

    waits = False
    resends = False

    def __init__(
        self,
        channels: str | ChannelModel,
        rounds: int,
        seed: int = 0,
        run: int = 0,
        *,
        deadline: float = 600.0,
    ) -> None:
        self.channels = build(channels)
        self.n_channels = self.channels.n_channels
        self.deadline = _seconds("deadline", deadline)
        self._air: Stream = open_air(self.channels, rounds, seed, run)
        self._drawn = 0

    def acknowledge(
        self, round: int, assignment: NDArray[np.int64], arrived: NDArray[np.bool_]
    ) -> list[bool | None]:
        """Let through what is on a Good channel; where there is nothing to carry, say so."""
        if round <= self._drawn:
            raise SequenceError(
                f"round must be after {self._drawn}, got {round}: the air is drawn forward only"
            )
        states = self._air.block(round - self._drawn).states[-1]
        self._drawn = round
        good = (assignment >= 0) & (states[assignment] == 1)
        return [bool(yes) if here else None for yes, here in zip(good, arrived, strict=True)]


@dataclasses.dataclass(frozen=True)
class DeadlineUplink:
    """A real link: an update is delivered if it arrived before the round's deadline.

    Parameters
    ----------
    n_channels : int >= 1
        The number N of interfaces, frequencies or gateways on which a client can be told to send.
    deadline : float > 0
        The number of seconds from the start of a round; it ends sooner if everybody is heard.
    resends : bool, default True
        Whether clients whose update is overdue send it again on the channel of the new round.

    Examples
    --------
    >>> uplink = DeadlineUplink(n_channels=3, deadline=20.0)
    >>> uplink.acknowledge(1, np.array([2, 0]), np.array([True, False]))
    [True, False]
    """

    n_channels: int
    deadline: float
    resends: bool = True
    waits: bool = dataclasses.field(default=True, init=False)

    def __post_init__(self) -> None:
        _seconds("deadline", self.deadline)

    def acknowledge(
        self, round: int, assignment: NDArray[np.int64], arrived: NDArray[np.bool_]
    ) -> list[bool | None]:
        """Say what arrived; nothing else is known of a real link."""
        return [bool(here) for here in arrived]


def _seconds(name: str, value: float) -> float:
    if not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ParameterError(f"{name} must be a number of seconds > 0, got {shown(value)}")
    return float(value)
