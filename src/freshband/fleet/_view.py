"""What a coordinator shows: its problem, ages, open rounds, estimates."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from freshband._policy import Policy
from freshband.fleet._names import Name, Names
from freshband.fleet._state import LOST, MUTE, UNKNOWN, Fleet
from freshband.fleet.options import FleetOptions
from freshband.matching.base import priorities_of
from freshband.schedulers.base import means
from freshband.schedulers.beliefs import Beliefs, explain
from freshband.states import duplicate


class View:
    """The read-only side of a coordinator; arrays are copies."""

    _lock: threading.RLock
    _clients: Names
    _channels: Names
    _seed: int
    _run: int
    _horizon: int | None
    _policy: Policy
    _options: FleetOptions
    _scheduler: Any
    _matching: Any
    _fleet: Fleet
    _members: NDArray[np.int8]  # 1 for clients that have not left
    _round: int  # rounds closed
    _observed: int  # calls of observe
    _planned: bool  # whether there is a plan of which nothing was observed

    def __repr__(self) -> str:
        return (
            f"Coordinator({self.policy.name!r}, n_clients={self.n_clients}, "
            f"n_channels={self.n_channels}, seed={self.seed}) after round {self._round}"
        )

    @property
    def n_clients(self) -> int:
        """Number of clients M, those that left included until their number is used again."""
        return self._clients.count

    @property
    def n_channels(self) -> int:
        """Number of channels N."""
        return self._channels.count

    @property
    def seed(self) -> int:
        """The seed of all choices."""
        return self._seed

    @property
    def run(self) -> int:
        """Which of the independent runs with this seed it is."""
        return self._run

    @property
    def horizon(self) -> int | None:
        """Number of rounds T, if it was given."""
        return self._horizon

    @property
    def policy(self) -> Policy:
        """Scheduler, AoI-aware rule and matching."""
        return self._policy

    @property
    def fleet_options(self) -> FleetOptions:
        """What is assumed about the clients, without their weights."""
        return self._options

    @property
    def client_ids(self) -> list[Name | None]:
        """Ids of all clients; None where a client left."""
        with self._lock:
            return [self._clients[client] for client in range(self.n_clients)]

    @property
    def round(self) -> int:
        """The number of rounds that are closed: observed, or followed by another plan."""
        with self._lock:
            return self._round

    @property
    def ages(self) -> NDArray[np.float64]:
        """Expected ages of the clients at the end of the last closed round; NaN if it left."""
        with self._lock:
            ages = self._round - self._fleet.since + 1.0
            return np.where(self._members == 1, ages, np.nan)

    @property
    def alive(self) -> NDArray[np.float64]:
        """The probability that each client is still there (a copy)."""
        with self._lock:
            return self._fleet.doubts.alive.copy()

    @property
    def pending(self) -> NDArray[np.int64] | None:
        """The latest plan (a copy) if nothing of it has been observed, or None."""
        with self._lock:
            return self._assignment(self._round + 1) if self._planned else None

    @property
    def transmissions(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The clients that send in the latest plan, and their channels (copies); the rest is idle.

        For fleets of which few can send: ``observe(outcomes, clients=clients)`` takes the outcomes
        in the same order.
        """
        with self._lock:
            entries = self._fleet.sent.of(self._round + self._planned)
            return entries["client"].copy(), entries["channel"].copy()

    @property
    def open_rounds(self) -> list[int]:
        """Rounds with outcomes that are unknown and may still be observed, in ascending order."""
        with self._lock:
            rounds = self._fleet.sent.rounds
            return sorted(rounds["round"][rounds["unknown"] > 0].tolist())

    @property
    def priorities(self) -> NDArray[np.float64] | None:
        """Priorities of the clients in the last plan, equation (39); None without ``+priority``.

        NaN for clients that had no slot, because more are there than may send.
        """
        with self._lock:
            found = np.zeros(len(self._fleet.served))
            if not priorities_of(self._matching, found):
                return None
            served = self._fleet.served[: self._fleet.slots[0]]
            spread = np.full(self.n_clients, np.nan)
            spread[served] = found[: len(served)]
            return spread

    @property
    def channel_means(self) -> NDArray[np.float64]:
        """The scheduler's estimate of each channel's success rate; 0.5 without observations."""
        found = np.full(self.n_channels, 0.5)
        with self._lock:
            means(duplicate(self._scheduler), found)  # it may use up what came late
        return found

    @property
    def beliefs(self) -> Beliefs | None:
        """What the scheduler believes about the channels and their changes.

        None if it cannot tell: of the package's schedulers only `bayes` can.

        Examples
        --------
        >>> from freshband import Coordinator
        >>> server = Coordinator("bayes", n_clients=2, n_channels=3, seed=0)
        >>> for t in range(300):
        ...     good = [1, 1, 0] if t < 250 else [0, 1, 1]
        ...     _ = server.observe([good[channel] == 1 for channel in server.plan()])
        >>> believed = server.beliefs
        >>> bool(believed.rate[0] < 0.5 < believed.rate[2])
        True
        >>> bool(believed.segment_age[0] < 60 < believed.segment_age[1])
        True
        """
        with self._lock:
            scheduler = duplicate(self._scheduler)
            if self.round > 0:
                means(scheduler, np.zeros(self.n_channels))  # uses what came late
            return explain(scheduler)

    def _assignment(self, t: int) -> NDArray[np.int64]:
        """Return the plan of a round that is remembered."""
        assignment = np.full(self.n_clients, -1, np.int64)
        entries = self._fleet.sent.of(t)
        assignment[entries["client"]] = entries["channel"]
        return assignment

    def _log_entry(self, when: int, news: NDArray[np.int8]) -> dict[str, Any]:
        """Return what the log says of a round, with news of it that is not learnt yet."""
        outcome, sent = np.full(self.n_clients, -1), self._fleet.sent.of(when)
        known = np.where(news == UNKNOWN, sent["outcome"], news)
        outcome[sent["client"]] = np.where(known == MUTE, LOST, known)
        entry = {
            "line": self._observed + 1,
            "round": when,
            "assignment": self._assignment(when).tolist(),
            "outcome": [None if x < 0 else x for x in outcome.tolist()],
        }
        named = {"clients": self._clients.to_list(), "channels": self._channels.to_list()}
        return entry | {name: ids for name, ids in named.items() if ids is not None}
