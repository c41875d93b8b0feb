"""The coordinator: the server side of the round as one object."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from freshband._default import DEFAULT_POLICY
from freshband._files import write_whole
from freshband._jit import explained
from freshband._lending import Caller
from freshband._policy import Policy, parse_policy
from freshband._rounds import broken_rule, read_contributions
from freshband._seeding import Role, check_seed, generator
from freshband.errors import FileError, ParameterError, reason
from freshband.fleet._acknowledgements import (
    check_news,
    check_open,
    read_mask,
    read_news,
    still_open,
)
from freshband.fleet._learning import observe, observe_late
from freshband.fleet._members import Members
from freshband.fleet._names import Name, Names
from freshband.fleet._planning import plan
from freshband.fleet._saving import _ROOM, read_coordinator, write_coordinator
from freshband.fleet._state import LOST, UNKNOWN, as_complete, is_complete, open_fleet
from freshband.fleet.log import Log
from freshband.fleet.options import FleetOptions, Links, ProofOfLife, Silence, read_weights
from freshband.parameters import file_path, whole_number
from freshband.states import reserve
from freshband.warming import compile_for

__all__ = ["Coordinator"]


class Coordinator(Members):
    """Plans each round and learns from acknowledgements.

    `plan` gives clients their channels and `observe` learns from acknowledgements. The coordinator
    needs no channel statistics, survives restarts, and may be called from several threads: each
    call holds one lock.

    Parameters
    ----------
    policy : str or Policy
        ``scheduler[:preset][+token...]``, such as ``"bayes"`` or ``"glr-cucb:paper+aa"``.
    n_clients : int >= 1
        M; there may be more clients than channels.
    n_channels : int >= 1
        N.
    seed : int >= 0, default 0
        The seed, which makes every choice reproducible.
    run : int >= 0, default 0
        Which of the independent runs with this seed it is.
    options : mapping, optional
        Hyper-parameters of the policy, such as ``{"delta": 0.01}``.
    horizon : int >= 1, optional
        The number of rounds T, which only the literal ``:paper`` settings need.
    log : path or Log, optional
        A file to which a JSON line per observation is appended: line, round, assignment, outcome,
        alarm. See `freshband.fleet.log.Log`.
    scheduler : str or Policy, optional
        The old name of ``policy``.
    weights, max_transmissions, links, max_delay, silence, proof_of_life : optional
        What is assumed about the clients: see `freshband.fleet.FleetOptions`.
    client_ids, channel_ids : sequence of str or int, optional
        Names, which the log, errors, `join` and `leave` use; by default the numbers from 0.
    warm_up : bool, default False
        Whether to compile everything now, so that no later call takes seconds.

    Examples
    --------
    >>> coordinator = Coordinator(n_clients=2, n_channels=5, seed=0)
    >>> plan = coordinator.plan()  # a channel for each client
    >>> coordinator.observe([True, None])  # client 1's acknowledgement has not arrived yet
    >>> coordinator.ages  # as far as the server knows, it was heard with probability 1/2
    array([1. , 1.5])
    >>> _ = coordinator.plan()
    >>> coordinator.observe([False, True])
    >>> coordinator.observe([None, False], round=1)  # one round late
    >>> coordinator.ages
    array([2., 1.])
    """

    def __init__(
        self,
        policy: str | Policy = DEFAULT_POLICY,
        n_clients: int = 2,
        n_channels: int = 5,
        seed: int = 0,
        *,
        run: int = 0,
        options: Mapping[str, Any] | None = None,
        horizon: int | None = None,
        log: str | os.PathLike[str] | Log | None = None,
        scheduler: str | Policy | None = None,
        weights: ArrayLike | None = None,
        max_transmissions: int | None = None,
        links: Links = "shared",
        max_delay: int = 100,
        silence: Silence = "random",
        proof_of_life: ProofOfLife = "outcome",
        client_ids: Sequence[Name] | None = None,
        channel_ids: Sequence[Name] | None = None,
        warm_up: bool = False,
    ) -> None:
        if scheduler is not None and policy != DEFAULT_POLICY:
            raise ParameterError("scheduler is the old name of policy: give one of the two")
        n_clients = whole_number("n_clients", n_clients, at_least=1)
        n_channels = whole_number("n_channels", n_channels, at_least=1)
        self._seed, self._run = check_seed(seed), whole_number("run", run, at_least=0)
        self._horizon = None if horizon is None else whole_number("horizon", horizon, at_least=1)
        self._policy = parse_policy(policy if scheduler is None else scheduler, options)
        self._options = FleetOptions(
            max_transmissions=max_transmissions,
            links=links,
            max_delay=max_delay,
            silence=silence,
            proof_of_life=proof_of_life,
        )
        if self.policy.scheduler.sees_channels:
            raise ParameterError(
                f"policy must learn from acknowledgements; {self.policy.name!r} sees the channels, "
                "which only a simulation can show"
            )
        if links == "differ" and not self.policy.learns_links:
            raise ParameterError(
                f"policy {self.policy.name!r} learns one success rate per channel; where links "
                "differ, use 'bayes'"
            )
        self._lock = threading.RLock()
        self._clients = Names("client", n_clients, client_ids)
        self._channels = Names("channel", n_channels, channel_ids)
        self._rng = generator(self.seed, Role.POLICY, self.run)
        self._start(self._rng)
        self._fleet.weight[:] = read_weights(weights, n_clients)
        self._left = np.zeros(n_clients, np.int64)  # the round in which a client left
        self._members = np.ones(n_clients, np.int8)
        self._round = self._observed = 0  # rounds closed, and calls of observe
        self._reserved = 0
        self._planned = False
        self._complete = False  # whether the fleet's masks say that all are there
        self._shown = self._fleet  # marked if it is complete
        self._run_plan, self._run_observe = Caller(plan), Caller(observe)
        self._run_late = Caller(observe_late)
        self._log = None if log is None else Log.of(log)
        if warm_up:
            compile_for(self)

    def _start(self, rng: np.random.Generator) -> None:
        """Allocate scheduler, matching and fleet for the present number of clients."""
        options, most = self._options, self._options.most(self.n_clients, self.n_channels)
        differ = options.links == "differ"
        self._scheduler, self._matching = self.policy.start(
            self.n_clients, self.n_channels, rng, self.horizon, most=most, links=differ
        )
        self._fleet = open_fleet(
            self.n_clients,
            self.n_channels,
            most=most,
            links=self.policy.scores_links(differ),
            max_delay=options.max_delay,
            proof_of_life=options.proves_life,
        )
        self._news = np.empty(most, np.int8)  # outcomes on their way into compiled code

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle what `save` writes, between two rounds; the log is not included."""
        return Coordinator.from_bytes, (self.to_bytes(),)

    # ------------------------------------------------------------------------------- a round

    def plan(
        self,
        contributions: ArrayLike | None = None,
        *,
        present: ArrayLike | None = None,
        available: ArrayLike | None = None,
    ) -> NDArray[np.int64]:
        """Return the channel of each client for the coming round, shape (n_clients,); -1 is idle.

        Outcomes of earlier rounds may still be open: they can be observed later.

        Parameters
        ----------
        contributions : array of float >= 0, shape (n_clients,), optional
            The value of each client's update (33), from training; required with ``+priority``, and
            an error otherwise.
        present : array of bool, shape (n_clients,), optional
            Which clients can send; by default all, and those that fall silent are doubted.
        available : array of bool, shape (n_channels,), optional
            Which channels can be used; by default all. What is known of the others is kept.

        Raises
        ------
        RuleError
            If your own scheduler or matching chose channels that do not exist, or one twice.
        """
        with self._lock:
            worth = read_contributions(contributions, self.n_clients, self._policy)
            here = read_mask("present", present, self.n_clients, "client")
            usable = read_mask("available", available, self.n_channels, "channel")
            if self._planned:  # its outcomes are unknown for now
                self._learn(self._round + 1, still_open(self._fleet.sent, self._round + 1, UNKNOWN))
            t, oldest = self._round + 1, self._round - self._options.max_delay
            if self._options.silence == "loss" and oldest > 0:
                self._learn(oldest, still_open(self._fleet.sent, oldest, LOST))
            if t > self._reserved:  # arrays cannot grow in compiled code
                self._scheduler = reserve(self._scheduler, _ROOM)
                self._reserved = t - 1 + _ROOM
            if worth is not None:
                self._fleet.priorities[:] = worth
            if present is not None or available is not None or not self._complete:
                self._note_masks(here, usable, t if present is not None else None)
            with explained(self._policy.name):
                states = self._scheduler, self._matching, self._shown, self._rng
                kept = self._run_plan(states, t)
            if not kept:
                raise broken_rule(self._policy.name, t, self._fleet.desk)
            self._planned = True
            return self._fleet.desk.assignment.copy() if self._complete else self._assignment(t)

    def _note_masks(self, here: Any, usable: Any, known: int | None) -> None:
        """Write who and what is there; in round ``known`` the user knows who lives."""
        fleet = self._fleet
        np.bitwise_and(self._members, here, out=fleet.present)
        fleet.available[:] = usable
        self._complete = is_complete(fleet)
        self._shown = as_complete(fleet) if self._complete else fleet
        if known is not None:
            fleet.doubts.alive[fleet.present == 1] = 1.0
            fleet.doubts.heard[fleet.present == 1] = known - 1

    def observe(
        self,
        delivered: ArrayLike | Sequence[bool | None],
        *,
        round: int | None = None,
        clients: ArrayLike | None = None,
        teaches: ArrayLike | None = None,
    ) -> int | None:
        """Learn which updates got through.

        Parameters
        ----------
        delivered : sequence of bool or None, shape (n_clients,)
            True (or 1) delivered, False (or 0) lost, None (or -1) not known yet: until it is, the
            client's expected age is used. The entry of a client without a channel is ignored.
        round : int >= 1, optional
            The round in which they were sent, at most ``max_delay`` rounds ago; by default that of
            the latest plan. A round may be observed in parts; contradictions are errors.
        clients : array of int, optional
            The numbers of the clients that ``delivered`` is about; by default all clients.
        teaches : array of bool, optional
            False where a loss says nothing about its channel, as that of a refused update.

        Returns
        -------
        int or None
            The channel on which a change was detected, or None.

        Raises
        ------
        SequenceError
            If no plan is pending, or the round is too old or not planned.
        FileError
            If the log cannot be written; then nothing is learnt.
        """
        with self._lock:
            latest = self._round + self._planned
            when = latest if round is None else whole_number("round", round, at_least=1)
            closes = self._planned and when == latest
            if not closes:
                check_open(self._fleet.sent, when, latest, self._planned, named=round is not None)
            sent = self._fleet.sent.of(when)
            news = read_news(sent, delivered, self.n_clients, clients, teaches)
            if not closes:  # some of it may be known
                check_news(sent, when, news, self._clients)
            if self._log is None:
                self._observed += 1
                return self._learn(when, news)
            entry = self._log_entry(when, news)
            place = self._log.write(entry, self.n_channels - 1)  # on failure nothing is learnt
            self._observed += 1
            alarm = self._learn(when, news)
            if alarm is not None:
                self._log.tell_alarm(place, entry, alarm)
            return alarm

    def _learn(self, when: int, news: NDArray[np.int8]) -> int | None:
        closes = self._planned and when == self._round + 1
        t, size = self._round + closes, len(news)
        self._news[:size] = news
        with explained(self._policy.name):
            states = self._scheduler, self._fleet, self._news
            if closes:
                alarm = int(self._run_observe(states, t, size))
            else:
                alarm = int(self._run_late(states, t, size, when))
        self._round, self._planned = t, self._planned and not closes  # even if a rule was broken
        if not -1 <= alarm < self.n_channels:
            raise broken_rule(self._policy.name, t, self._fleet.desk, alarm)
        return None if alarm < 0 else alarm

    # --------------------------------------------------------------------------------- saving

    def save(self, path: str | os.PathLike[str], *, key: bytes | None = None) -> None:
        """Write everything needed to continue to one file, completely or not at all.

        It may be called between `plan` and `observe`, and from any thread: a file is the state at
        one time. With a secret ``key`` only those who know it can make or change a file that `load`
        accepts with this key. Raises `FileError` if it cannot be written.
        """
        data = self.to_bytes(key=key)
        if self._log is not None:
            self._log.sync()  # by now it has a line for all that the state has learnt
        write_whole(path, data)

    def to_bytes(self, *, key: bytes | None = None) -> bytes:
        """Return what `save` writes."""
        return write_coordinator(self, key)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        log: str | os.PathLike[str] | Log | None = None,
        key: bytes | None = None,
    ) -> Coordinator:
        """Return the coordinator saved at ``path``; it continues identically.

        Raises `FileError` if the file is missing, damaged, not a coordinator's, or not sealed with
        the ``key``.
        """
        source = file_path("path", path)
        try:
            data = source.read_bytes()
        except OSError as error:
            raise FileError(f"cannot read {source}: {reason(error)}") from None
        self = cls.from_bytes(data, str(source), key=key)
        if log is not None:
            self._log = kept = Log.of(log)
            kept.rewind(self._observed)
        return self

    @classmethod
    def from_bytes(
        cls, data: bytes, source: str = "the data", *, key: bytes | None = None
    ) -> Coordinator:
        """Return the coordinator `to_bytes` wrote; ``source`` names it in errors."""
        return read_coordinator(cls, data, source, key)
