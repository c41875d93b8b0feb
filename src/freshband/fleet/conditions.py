"""Simulated fleets: acknowledgements that are late or lost, and clients that come and go."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from freshband._seeding import Role, generator
from freshband.errors import ParameterError
from freshband.fleet.options import FleetOptions, read_weights

__all__ = ["ConditionStream", "Conditions", "SimulatedFleet", "open_conditions"]


class SimulatedFleet(FleetOptions):
    """A fleet for simulation: what the server assumes, and what happens to it.

    What it assumes are the settings of `FleetOptions`; ``links`` follows from the channel model.

    Parameters
    ----------
    ack_delay : int >= 0, default 0
        The number of rounds after which the server learns an outcome.
    ack_loss : float in [0, 1), default 0
        The share of outcomes that the server never learns.
    churn : float >= 1, optional
        Clients come and go: the mean number of rounds for which a client stays, and for which it
        stays away. By default all clients are always there.
    dead : list of int, default none
        Clients that are never there.
    outages : float >= 1, optional
        Channels come and go: the mean number of rounds for which a channel works, and for which it
        does not. By default all channels are always there.
    tells : bool, default False
        Whether the server is told in every round which clients and channels are there.

    Examples
    --------
    >>> SimulatedFleet(ack_delay=5).is_plain
    False
    """

    ack_delay: int = Field(default=0, ge=0)
    ack_loss: float = Field(default=0.0, ge=0, lt=1)
    churn: float | None = Field(default=None, ge=1)
    dead: tuple[Annotated[int, Field(ge=0)], ...] = ()
    outages: float | None = Field(default=None, ge=1)
    tells: bool = False

    @model_validator(mode="after")
    def _agree(self) -> SimulatedFleet:
        if self.ack_delay > self.max_delay:
            raise ParameterError(
                f"ack_delay must be at most max_delay = {self.max_delay}, got {self.ack_delay}"
            )
        return self

    @cached_property
    def is_plain(self) -> bool:
        """Whether nothing differs from the problem of the paper."""
        return self == _PLAIN

    def as_config(self) -> dict[str, Any]:
        """Return what differs from the paper's problem as JSON values, under the key ``fleet``."""
        return {} if self.is_plain else {"fleet": self.model_dump(mode="json", exclude_unset=True)}

    def check_clients(self, n_clients: int) -> None:
        """Raise `ParameterError` if the settings are for another number of clients."""
        read_weights(self.weights, n_clients)
        if any(client >= n_clients for client in self.dead) or len(set(self.dead)) == n_clients:
            raise ParameterError(
                f"dead must name some of the clients 0 to {n_clients - 1}, but not all, got "
                f"{list(self.dead)}"
            )


_PLAIN = SimulatedFleet()


class Conditions(NamedTuple):
    """What happens to a fleet in the next n rounds."""

    present: NDArray[np.uint8]  # (n, M) 1 for clients that are there
    answered: NDArray[np.uint8]  # (n, M) 1 for outcomes that the server will learn
    available: NDArray[np.uint8]  # (n, N) 1 for channels that are there


class _Switches:
    """Things that are there at first, and switch with a probability of 1/period per round."""

    def __init__(self, count: int, period: float | None, rng: np.random.Generator) -> None:
        self._there, self._period, self._rng = np.ones(count, np.bool_), period, rng

    def block(self, n: int) -> NDArray[np.bool_]:
        if self._period is None:
            return np.ones((n, len(self._there)), np.bool_)
        switched = self._rng.random((n, len(self._there))) < 1.0 / self._period
        there: NDArray[np.bool_] = self._there ^ (np.cumsum(switched, axis=0) % 2 == 1)
        if n > 0:
            self._there = there[-1]
        return there


class ConditionStream:
    """The conditions of one run, drawn forward only; blocks of any size give the same."""

    def __init__(
        self, fleet: SimulatedFleet, n_clients: int, n_channels: int, seed: int, run: int
    ) -> None:
        self._loss = fleet.ack_loss
        self._answers = generator(seed, Role.ACKNOWLEDGEMENTS, run)
        self._clients = _Switches(n_clients, fleet.churn, generator(seed, Role.CHURN, run))
        self._channels = _Switches(n_channels, fleet.outages, generator(seed, Role.OUTAGES, run))
        self._living = np.ones(n_clients, np.bool_)
        self._living[list(fleet.dead)] = False

    def block(self, n: int) -> Conditions:
        """Draw the next ``n`` rounds."""
        present = self._clients.block(n) & self._living
        answered = np.ones(present.shape, np.bool_)
        if self._loss > 0:
            answered = self._answers.random(present.shape) >= self._loss
        available = self._channels.block(n)
        return Conditions(*(flags.view(np.uint8) for flags in (present, answered, available)))


def open_conditions(
    fleet: SimulatedFleet, n_clients: int, n_channels: int, seed: int, run: int = 0
) -> ConditionStream:
    """Open the conditions of one run; the same arguments always give the same.

    Examples
    --------
    >>> stream = open_conditions(SimulatedFleet(churn=2.0), n_clients=3, n_channels=2, seed=0)
    >>> stream.block(4).present.shape
    (4, 3)
    """
    return ConditionStream(fleet, n_clients, n_channels, seed, run)
