"""The coordinator: the server side of the round as one object."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from freshband._files import check_appendable, write_whole
from freshband._jit import entry_point, explained, lend
from freshband._packed import pack, unpack
from freshband._policy import Policy, parse_policy
from freshband._rounds import (
    broken_rule,
    observe_round,
    open_desk,
    plan_round,
    read_contributions,
    read_outcome,
)
from freshband._seeding import Role, check_seed, generator
from freshband.errors import FileError, FreshbandError, ParameterError, SequenceError, reason
from freshband.matching.base import priorities_of
from freshband.parameters import file_path, whole_number
from freshband.schedulers.base import means
from freshband.schedulers.oracle import Oracle
from freshband.states import _arrays, _rebuild, reserve

__all__ = ["Coordinator"]

_FORMAT: Final = "freshband coordinator 1"
_ROOM: Final = 1024  # rounds reserved ahead at a time


@entry_point
def _plan(scheduler: Any, matching: Any, desk: Any, rng: Any, t: int) -> bool:
    return plan_round(lend(scheduler), lend(matching), lend(desk), lend(rng), t)


@entry_point
def _observe(scheduler: Any, desk: Any, t: int) -> int:
    for j in range(len(desk.assignment)):
        if desk.assignment[j] < 0:  # a client without a channel sent nothing
            desk.outcome[j] = -1
    return observe_round(lend(scheduler), lend(desk), t)


class _Problem(NamedTuple):
    """The parameters that do not change during a run."""

    n_clients: int
    n_channels: int
    seed: int
    horizon: int | None
    policy: Policy
    run: int


class Coordinator:
    """Plans each round and learns from acknowledgements.

    `plan` gives clients their channels and `observe` learns from acknowledgements. The coordinator
    needs no channel statistics, survives restarts, and may be called from several threads.

    Parameters
    ----------
    policy : str or Policy
        ``scheduler[:preset][+token...]``, such as ``"glr-cucb"`` or ``"glr-cucb:paper+aa"``.
    n_clients : int >= 1
        M.
    n_channels : int >= n_clients
        N.
    seed : int >= 0, default 0
        The seed, which makes every choice reproducible.
    run : int >= 0, default 0
        Which of the independent runs with this seed it is.
    options : mapping, optional
        Hyper-parameters of the policy, such as ``{"delta": 0.01}``.
    horizon : int >= 1, optional
        The number of rounds T, which only the literal ``:paper`` settings need.
    log : path, optional
        A file to which one JSON line per round is appended: round, assignment, outcome, alarm.
    scheduler : str or Policy, optional
        The old name of ``policy``.

    Examples
    --------
    >>> coordinator = Coordinator("glr-cucb", n_clients=2, n_channels=5, seed=0)
    >>> plan = coordinator.plan()  # a channel for each client
    >>> coordinator.observe([True, None])  # client 1's acknowledgement was lost
    >>> coordinator.ages
    array([1, 2])
    """

    def __init__(
        self,
        policy: str | Policy = "glr-cucb",
        n_clients: int = 2,
        n_channels: int = 5,
        seed: int = 0,
        *,
        run: int = 0,
        options: Mapping[str, Any] | None = None,
        horizon: int | None = None,
        log: str | os.PathLike[str] | None = None,
        scheduler: str | Policy | None = None,
    ) -> None:
        if scheduler is not None and policy != "glr-cucb":
            raise ParameterError("scheduler is the old name of policy: give one of the two")
        self._problem = _Problem(
            n_clients=whole_number("n_clients", n_clients, at_least=1),
            n_channels=whole_number("n_channels", n_channels, at_least=1),
            seed=check_seed(seed),
            horizon=None if horizon is None else whole_number("horizon", horizon, at_least=1),
            policy=parse_policy(policy if scheduler is None else scheduler, options),
            run=whole_number("run", run, at_least=0),
        )
        if self.n_channels < self.n_clients:
            raise ParameterError(
                f"n_channels must be >= n_clients = {self.n_clients}, got {self.n_channels}"
            )
        if isinstance(self.policy.scheduler, Oracle):
            raise ParameterError(
                "policy must learn from acknowledgements; 'oracle' sees the channels, "
                "which only a simulation can show"
            )
        self._lock = threading.RLock()
        self._rng = generator(self.seed, Role.POLICY, self.run)
        self._scheduler, self._matching = self.policy.start(
            self.n_clients, self.n_channels, self._rng, self.horizon
        )
        links = self.policy.scheduler.client_scores
        self._desk = open_desk(self.n_clients, self.n_channels, links)
        self._round = 0  # rounds observed
        self._reserved = 0
        self._planned = False
        self._log = None if log is None else check_appendable(file_path("log", log))

    def __repr__(self) -> str:
        return (
            f"Coordinator({self.policy.name!r}, n_clients={self.n_clients}, "
            f"n_channels={self.n_channels}, seed={self.seed}) after round {self._round}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle what `save` writes, between two rounds; the log is not included."""
        return Coordinator.from_bytes, (self.to_bytes(),)

    @property
    def n_clients(self) -> int:
        """Number of clients M."""
        return self._problem.n_clients

    @property
    def n_channels(self) -> int:
        """Number of channels N."""
        return self._problem.n_channels

    @property
    def seed(self) -> int:
        """The seed of all choices."""
        return self._problem.seed

    @property
    def run(self) -> int:
        """Which of the independent runs with this seed it is."""
        return self._problem.run

    @property
    def horizon(self) -> int | None:
        """Number of rounds T, if it was given."""
        return self._problem.horizon

    @property
    def policy(self) -> Policy:
        """Scheduler, AoI-aware rule and matching."""
        return self._problem.policy

    @property
    def round(self) -> int:
        """The number of rounds observed so far."""
        with self._lock:
            return self._round

    @property
    def ages(self) -> NDArray[np.int64]:
        """Ages of the clients at the end of the last observed round (a copy)."""
        with self._lock:
            return self._desk.ages.copy()

    @property
    def pending(self) -> NDArray[np.int64] | None:
        """The plan whose outcome is not observed yet (a copy), or None."""
        with self._lock:
            return self._desk.assignment.copy() if self._planned else None

    @property
    def priorities(self) -> NDArray[np.float64] | None:
        """Priorities of the clients in the last plan, equation (39); None without ``+priority``."""
        found = np.zeros(self.n_clients)
        with self._lock:
            return found if priorities_of(self._matching, found) else None

    @property
    def channel_means(self) -> NDArray[np.float64]:
        """The scheduler's estimate of each channel's success rate; 0.5 without observations."""
        found = np.full(self.n_channels, 0.5)
        with self._lock:
            means(self._scheduler, found)
        return found

    def plan(self, contributions: ArrayLike | None = None) -> NDArray[np.int64]:
        """Return the channel of each client for the coming round, shape (n_clients,).

        -1 means no channel, which only user-defined matchings assign.

        Parameters
        ----------
        contributions : array of float >= 0, shape (n_clients,), optional
            The value of each client's update (33), from training; required with ``+priority``, and
            an error otherwise.

        Raises
        ------
        SequenceError
            If the outcome of the last plan was not observed yet.
        RuleError
            If your own scheduler or matching chose channels that do not exist, or one twice.
        """
        worth = self._read_contributions(contributions)
        with self._lock:
            t = self._round + 1
            if self._planned:
                raise SequenceError(
                    f"round {t} is already planned (see .pending): observe it first"
                )
            self._desk.priorities[:] = worth
            if self._round >= self._reserved:  # arrays cannot grow in compiled code
                self._scheduler = reserve(self._scheduler, _ROOM)
                self._reserved = self._round + _ROOM
            with explained(self.policy.name):
                kept = _plan(self._scheduler, self._matching, self._desk, self._rng, t)
            if not kept:
                raise broken_rule(self.policy.name, t, self._desk)
            self._planned = True
            return self._desk.assignment.copy()

    def _read_contributions(self, contributions: ArrayLike | None) -> NDArray[np.float64]:
        if contributions is None:
            if self.policy.needs_contributions:
                raise ParameterError(
                    f"{self.policy.name!r} ranks clients by their contributions: call "
                    "plan(contributions)"
                )
            return np.zeros(self.n_clients)
        if not self.policy.needs_contributions:
            raise ParameterError(
                f"contributions are for '+priority' only; {self.policy.name!r} does not use them"
            )
        return read_contributions(contributions, self.n_clients)

    def observe(self, delivered: ArrayLike | Sequence[bool | None]) -> int | None:
        """Learn which updates got through.

        Parameters
        ----------
        delivered : sequence of bool or None, shape (n_clients,)
            True (or 1) delivered, False (or 0) lost, None (or -1) unknown, as when the
            acknowledgement itself was lost: the client's age grows, and the learner ignores the
            outcome. The entry of a client without a channel is ignored.

        Returns
        -------
        int or None
            The channel on which a change was detected, or None.

        Raises
        ------
        SequenceError
            If no plan is pending.
        FileError
            If the log cannot be written; then nothing is learnt, unless the disk filled up while
            the line was being written.
        """
        with self._lock:
            if not self._planned:
                raise SequenceError(f"nothing to observe: call plan() for round {self._round + 1}")
            outcome = read_outcome(delivered, self.n_clients)
            if self._log is None:
                return self._learn(outcome)
            try:
                with self._log.open("a", encoding="utf-8") as log:  # on failure nothing is learnt
                    alarm = self._learn(outcome)
                    entry = {
                        "round": self._round,
                        "assignment": self._desk.assignment.tolist(),
                        "outcome": [None if x < 0 else x for x in self._desk.outcome.tolist()],
                        "alarm": alarm,
                    }
                    log.write(json.dumps(entry) + "\n")
            except OSError as error:
                raise FileError(f"cannot write {self._log}: {reason(error)}") from None
            return alarm

    def _learn(self, outcome: NDArray[np.int8]) -> int | None:
        t = self._round + 1
        self._desk.outcome[:] = outcome
        with explained(self.policy.name):
            alarm = int(_observe(self._scheduler, self._desk, t))
        self._round, self._planned = t, False  # learnt, even if a rule was broken
        if not -1 <= alarm < self.n_channels:
            raise broken_rule(self.policy.name, t, self._desk, alarm)
        return None if alarm < 0 else alarm

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything needed to continue to one file, completely or not at all.

        It may be called between `plan` and `observe`. Raises `FileError` if it cannot be written.
        """
        write_whole(path, self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return what `save` writes."""
        with self._lock:
            header, held = self._snapshot()
        return pack(_FORMAT, header, held)

    def _snapshot(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return a header and copies of all arrays, taken at the same time."""
        states = {"desk": self._desk, "scheduler": self._scheduler, "matching": self._matching}
        header = {
            **self._problem._asdict(),
            "policy": self.policy.name,
            "options": self.policy.options,
            "round": self._round,
            "reserved": self._reserved,
            "planned": self._planned,
            "rng": self._rng.bit_generator.state,
        }
        held = {
            f"{part}.{name}": array.copy()
            for part, state in states.items()
            for name, array in _arrays(state)
        }
        return header, held

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, log: str | os.PathLike[str] | None = None
    ) -> Coordinator:
        """Return the coordinator saved at ``path``; it continues identically.

        Raises `FileError` if the file is missing, damaged, or not a coordinator's.
        """
        source = file_path("path", path)
        try:
            data = source.read_bytes()
        except OSError as error:
            raise FileError(f"cannot read {source}: {reason(error)}") from None
        self = cls.from_bytes(data, str(source))
        if log is not None:
            self._log = check_appendable(file_path("log", log))
        return self

    @classmethod
    def from_bytes(cls, data: bytes, source: str = "the data") -> Coordinator:
        """Return the coordinator `to_bytes` wrote; ``source`` names it in errors."""
        header, held = unpack(_FORMAT, data, source)
        try:
            self = cls(
                header["policy"],
                header["n_clients"],
                header["n_channels"],
                header["seed"],
                run=header.get("run", 0),
                options=header["options"],
                horizon=header["horizon"],
            )
            self._restore(header, held)
        except KeyError as error:
            raise FileError(f"cannot restore {source}: it lacks {error}") from None
        except (FreshbandError, TypeError, ValueError) as error:
            raise FileError(f"cannot restore {source}: {reason(error)}") from None
        return self

    def _restore(self, header: Mapping[str, Any], held: Mapping[str, NDArray[Any]]) -> None:
        self._scheduler = _rebuild(self._scheduler, held, "scheduler.")
        self._matching = _rebuild(self._matching, held, "matching.")
        self._desk = _rebuild(self._desk, held, "desk.")
        self._round, self._planned = int(header["round"]), bool(header["planned"])
        # Reserve the same room as the saved run: growing in other rounds could change rounding.
        self._reserved = int(header["reserved"])
        self._scheduler = reserve(self._scheduler, max(0, self._reserved - self._round))
        self._rng.bit_generator.state = header["rng"]
