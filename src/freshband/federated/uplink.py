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

from freshband.channels.adversary import Still, react, start_reacting
from freshband.channels.base import ChannelModel, Stream, build, open_air
from freshband.errors import ParameterError, SequenceError, shown
from freshband.fleet.conditions import (
    Conditions,
    ConditionStream,
    SimulatedFleet,
    open_conditions,
)
from freshband.states import _arrays


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
            True delivered, which takes ``arrived``, False lost, None not delivered for a reason
            that says nothing about the channel, such as a client that had nothing to send.
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
        Seconds to wait for a client's training; a client that takes longer has nothing to send.
    clients : int >= 1, optional
        The number of clients M, which a fleet needs, and channels whose links differ.
    fleet : SimulatedFleet, optional
        What happens to the clients and to acknowledgements; by default nothing.

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
        clients: int | None = None,
        fleet: SimulatedFleet | None = None,
    ) -> None:
        self.channels = build(channels)
        self.n_channels = self.channels.n_channels
        self.deadline = _seconds("deadline", deadline)
        self.fleet = SimulatedFleet() if fleet is None else fleet
        self._air: Stream = open_air(self.channels, rounds, seed, run, clients)
        self._drawn = 0
        self._jammer = start_reacting(self.channels)
        self._moves = self.fleet.churn is not None or len(self.fleet.dead) > 0
        self._now: tuple[int, Conditions | None] = (0, None)  # a round, and what happens in it
        self._conditions: ConditionStream | None = None
        self._before = np.zeros(0, np.int64)  # the last assignment, where the air reacts
        reacts = not isinstance(self._jammer, Still)
        if clients is not None:
            self.fleet.check_clients(clients)
            self._before = np.full(clients, -1) if reacts else self._before
            if self._moves or self.fleet.ack_loss > 0 or self.fleet.outages is not None:
                self._conditions = open_conditions(self.fleet, clients, self.n_channels, seed, run)
        elif reacts or not self.fleet.is_plain:
            raise ParameterError("clients must be given for a fleet or air that reacts, got None")

    def present(self, round: int) -> NDArray[np.bool_] | None:
        """Return who is there in a round, shape (M,), or None where everybody always is."""
        found = self._conditions_of(round)
        return found.present[-1].view(np.bool_) if found is not None and self._moves else None

    def available(self, round: int) -> NDArray[np.bool_] | None:
        """Return which channels are there in a round, shape (N,), or None where all always are."""
        found = self._conditions_of(round)
        there = None if found is None or self.fleet.outages is None else found.available[-1]
        return None if there is None else there.view(np.bool_)

    def told(self, round: int) -> tuple[NDArray[np.bool_] | None, NDArray[np.bool_] | None]:
        """Return what the scheduler knows of clients and channels that are there; None for all."""
        return (self.present(round), self.available(round)) if self.fleet.tells else (None, None)

    def _conditions_of(self, round: int) -> Conditions | None:
        if self._conditions is not None and round > self._now[0]:
            self._now = (round, self._conditions.block(round - self._now[0]))
        return self._now[1]

    def acknowledge(
        self, round: int, assignment: NDArray[np.int64], arrived: NDArray[np.bool_]
    ) -> list[bool | None]:
        """Let through what is on a Good channel; where there is nothing to carry, say so."""
        if round <= self._drawn:
            raise SequenceError(
                f"round must be after {self._drawn}, got {round}: the air is drawn forward only"
            )
        block = self._air.block(round - self._drawn)
        self._drawn = round
        states = block.states[-1]
        if len(self._before):
            react(self._jammer, round, self._before, states, block.means[-1])
            self._before[:] = assignment
        links = states[assignment] if states.ndim == 1 else states[range(len(states)), assignment]
        good = (assignment >= 0) & (links == 1)
        present, available = self.present(round), self.available(round)
        if available is not None:
            good &= available[assignment]
        if present is not None:
            good &= present
            arrived = arrived | ~present  # it has not said that there is nothing to carry
        return [bool(yes) if here else None for yes, here in zip(good, arrived, strict=True)]

    def answered(self, round: int) -> NDArray[np.bool_] | None:
        """Return of which transmissions the scheduler learns the outcome; None for all of them."""
        found = self._conditions_of(round)
        if found is None or (self.fleet.ack_loss == 0 and (self.fleet.tells or not self._moves)):
            return None
        # Nobody answers for a client that is gone, unless its silence is reported as a loss.
        there, heard = found.present[-1].view(np.bool_), found.answered[-1].view(np.bool_)
        return np.where(there, heard, self.fleet.proof_of_life == "delivery")

    def memory(self) -> dict[str, NDArray[np.uint8]]:
        """Return what air that reacts has seen, as views; all else can be drawn again."""
        if not len(self._before):
            return {}
        seen = {**dict(_arrays(self._jammer)), "before": self._before}
        return {f"air.{name}": array.reshape(-1).view(np.uint8) for name, array in seen.items()}


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
        Whether clients whose update is overdue send it again on the channel of the new round, and
        those without a channel keep theirs until they have one.
    patient : bool, default False
        Whether an update that misses the deadline is not lost for the scheduler, but unknown: it
        learns that it got through when it arrives, for the round it was sent in, and until then
        uses the client's expected age. Give the coordinator ``silence="loss"`` and ``max_delay``,
        the number of rounds after which an update is lost after all.

    Examples
    --------
    >>> uplink = DeadlineUplink(n_channels=3, deadline=20.0)
    >>> uplink.acknowledge(1, np.array([2, 0]), np.array([True, False]))
    [True, False]
    """

    n_channels: int
    deadline: float
    resends: bool = True
    patient: bool = False
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
