"""Clients that join a coordinator and leave it."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from freshband.errors import ParameterError
from freshband.fleet._names import Name
from freshband.fleet._view import View
from freshband.fleet.options import read_weight
from freshband.schedulers.base import forget_client
from freshband.states import enlarge


class Members(View):
    """The side of a coordinator on which its clients change."""

    _left: NDArray[np.int64]  # the round in which a client left
    _complete: bool  # whether the fleet's masks say that all are there

    @abstractmethod
    def _start(self, rng: np.random.Generator) -> None:
        """Allocate scheduler, matching and fleet for the present number of clients."""

    def join(self, client: Name | None = None, *, weight: float = 1.0) -> int:
        """Add a client, whose age is 1; return its number, the index into plans from now on.

        ``client`` is its id, by default its number. Numbers of clients that left are used again,
        once no outcome of theirs can arrive any more.
        """
        with self._lock:
            share = read_weight(weight)
            free = np.flatnonzero(
                (self._members == 0) & (self._left < self._round - self._options.max_delay)
            )
            number = int(free[0]) if len(free) else self.n_clients
            most = self._options.most(number + 1, self.n_channels)
            if most > self._fleet.links.most[0] and not self.policy.grows:
                raise ParameterError(
                    f"policy {self.policy.name!r} chooses sets of a fixed size: start it with the "
                    "largest number of clients, and let those that are not there leave"
                )
            self._clients.enter(client, number)
            if number == len(self._members):
                self._enlarge()
            forget_client(self._scheduler, number)  # its links may have been another client's
            fleet, self._complete = self._fleet, False
            self._members[number] = 1
            fleet.weight[number] = share
            fleet.since[number] = self._round
            fleet.doubts.alive[number] = 1.0
            fleet.doubts.heard[number] = self._round
            return number

    def _enlarge(self) -> None:
        """Make room for one more client."""
        scheduler, matching, fleet = self._scheduler, self._matching, self._fleet
        self._start(np.random.default_rng(0))  # the run's own numbers are not used up
        most = self._fleet.links.most[0]
        self._scheduler = enlarge(self._scheduler, scheduler)
        self._matching = enlarge(self._matching, matching)
        self._fleet = enlarge(self._fleet, fleet)
        self._fleet.links.most[0] = most
        self._members = np.append(self._members, np.int8(0))
        self._left = np.append(self._left, 0)

    def leave(self, client: Name) -> None:
        """Remove a client by its id: it gets no channel and counts no more."""
        with self._lock:
            number = self._clients.number(client)
            self._clients.remove(number)
            self._complete = False
            self._members[number] = 0
            self._left[number] = self._round + self._planned
