"""The server of a federated round, in one process or over a network.

A round is three calls:

1. `FederatedServer.plan` gives clients their channels and says who gets the model,
2. `FederatedServer.hand_out` notes whom it went to; they train, and what they send is pending,
3. `FederatedServer.finish` is told what got through. It refuses updates that a model cannot take
   (`freshband.federated.inspection`), applies the rest, lets the scheduler learn, and values the
   clients.

What the server knows changes in `finish` alone: a round that broke off before can be played again.

An update counts once. Where acknowledgements are late or lost, the model takes an update when it
arrives, but neither the scheduler nor the client knows: the client keeps it and sends it again when
it is given a channel, and gets the newest model once one of these transmissions is acknowledged.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from freshband.aoi import age_variance
from freshband.coordinator import Coordinator
from freshband.errors import ParameterError
from freshband.federated._parts import check_move, read_weights, undoing
from freshband.federated._state import (
    EMPTY,
    LOST,
    NEWER,
    REFUSED,
    TAKEN,
    UNKNOWN,
    Pending,
    Plan,
    ServerState,
    copy_into,
)
from freshband.federated._valuation import Valuation
from freshband.federated.algorithms import Algorithm, Arrivals
from freshband.federated.inspection import LENGTH_LIMIT, AlterUpdate, Inspection
from freshband.federated.records import RoundRecord
from freshband.parameters import whole_number

__all__ = ["FederatedServer", "Plan"]


class FederatedServer:
    """Plans rounds, and makes a new model of what got through.

    Parameters
    ----------
    model : tensor, shape (P,)
        The initial model; it becomes the server's own.
    coordinator, algorithm : Coordinator and Algorithm
        Who plans the channels, and what makes a new model of the updates that arrived.
    rounds : int >= 1
        The number of rounds T.
    client_lr : float > 0
        `η`, the clients' step.
    payload : int
        The number of bytes of a model on its way.
    weights : array of float >= 0, shape (M,), optional
        `ζ`, equal by default; scaled to sum to 1.
    valuation : Valuation, optional
        Values the clients, for ``+priority`` and contribution weights.
    keeps_models : bool, default True
        Whether the valuation keeps the clients' models, to leave them out one by one.
    local_rounds : int >= 1, optional
        The number of rounds a client works on a model; by default as the algorithm has it.
    length_limit, clip_norm, alter_update
        As for `freshband.federated.inspection.Inspection`.
    ack_delay : int >= 0, default 0
        The number of rounds after which scheduler and clients learn what became of an update.

    Examples
    --------
    >>> from freshband.federated.algorithms.renorm import Renorm
    >>> planner = Coordinator("random", n_clients=2, n_channels=3)
    >>> server = FederatedServer(
    ...     torch.zeros(2),
    ...     coordinator=planner,
    ...     algorithm=Renorm(),
    ...     rounds=9,
    ...     client_lr=0.5,
    ...     payload=8,
    ... )
    >>> plan = server.plan()
    >>> version = server.hand_out(plan.receivers.tolist())
    >>> sent = {client: Pending(torch.ones(2), version) for client in range(2)}
    >>> record = server.finish(plan, [True, None], sent)  # client 1 had nothing to send
    >>> record.delivered.tolist(), server.state.model
    ([True, False], tensor([-0.5000, -0.5000]))
    """

    def __init__(
        self,
        model: torch.Tensor,
        *,
        coordinator: Coordinator,
        algorithm: Algorithm,
        rounds: int,
        client_lr: float,
        payload: int,
        weights: ArrayLike | None = None,
        valuation: Valuation | None = None,
        keeps_models: bool = True,
        local_rounds: int | None = None,
        length_limit: float = LENGTH_LIMIT,
        clip_norm: float | None = None,
        ack_delay: int = 0,
        alter_update: AlterUpdate | None = None,
    ) -> None:
        if coordinator.policy.needs_contributions and valuation is None:
            raise ParameterError(f"{coordinator.policy.name!r} needs a valuation")
        n_clients = coordinator.n_clients
        self.coordinator, self.algorithm, self.valuation = coordinator, algorithm, valuation
        self.rounds = whole_number("rounds", rounds, at_least=1)
        self.client_lr = client_lr
        self._inspect = Inspection(client_lr, length_limit, clip_norm, alter_update)
        self.local_rounds = algorithm.training_rounds if local_rounds is None else local_rounds
        self.payload = payload + 8 * (valuation is not None)  # an error, or a weight
        self.scheduler_seconds = 0.0  # of the present round
        self._received: set[int] = set()
        self._released: set[int] = set()
        self._went_on: set[int] = set()
        self.state = ServerState.first(
            model, algorithm.start(model), read_weights(weights, n_clients),
            counts_work=self.local_rounds > 1, delay=ack_delay,
        )  # fmt: skip
        self.state.to_tensors()  # whatever a rule remembers can be saved
        if valuation is not None:
            valuation.open(model, keeps_models=keeps_models)

    @property
    def served(self) -> torch.Tensor:
        """The model the server hands out at present."""
        return self.algorithm.serve(self.state.model, self.state.memory)

    # ------------------------------------------------------------------------------ a round

    def plan(
        self,
        present: NDArray[np.bool_] | None = None,
        known: NDArray[np.bool_] | None = None,
        available: NDArray[np.bool_] | None = None,
    ) -> Plan:
        """Give clients their channels, and say who gets the model.

        Clients that are not ``present`` neither receive nor send; ``known`` is what the scheduler
        is told of this, and ``available`` of channels that are there; by default nothing.
        """
        state = self.state
        if state.round >= self.rounds:
            raise ParameterError("all rounds are played: make the number of rounds larger")
        began = time.perf_counter()
        assignment = self.coordinator.pending  # of a round that broke off, or none
        if assignment is None:
            valued = self.valuation if self.coordinator.policy.needs_contributions else None
            assignment = self.coordinator.plan(
                None if valued is None else valued.contributions,
                present=known,
                available=available,
            )
        self.scheduler_seconds = time.perf_counter() - began
        self._received, self._released, self._went_on = set(), set(), set()
        receives = state.receivers | self.algorithm.everybody_trains
        goes_on = ~receives[: len(state.worked)] & (state.worked < self.local_rounds)
        if present is not None:
            receives, goes_on = receives & present, goes_on & present[: len(goes_on)]
        who = np.flatnonzero(receives), np.flatnonzero(goes_on)
        return Plan(state.round + 1, assignment, *who, present)

    def hand_out(self, clients: Iterable[int]) -> int:
        """Note that the model went to these clients; return its version."""
        self._received |= set(clients)
        return self.state.version

    def go_on(self, clients: Iterable[int]) -> None:
        """Note that these clients go on from where they are."""
        self._went_on |= set(clients)

    def release(self, client: int) -> None:
        """Give up the update a client was to send: it gets the model next time."""
        self.state.receivers[client] = True
        self._released.add(client)

    def is_new(self, client: int) -> bool:
        """Whether the update that a client holds has not arrived before."""
        return client in self._received or self.state.verdicts[client] == 0

    def finish(
        self,
        plan: Plan,
        outcome: Sequence[bool | None],
        pending: Mapping[int, Pending],
        *,
        answered: NDArray[np.bool_] | None = None,
        late: Sequence[tuple[int, int]] = (),
    ) -> RoundRecord:
        """Make a new model of what got through; return what happened.

        ``outcome`` is by client: True for delivered, False for lost, and None for not delivered for
        a reason that says nothing about the channel. ``pending`` holds at least the new updates of
        those that were delivered. Scheduler and client never learn the outcomes that are not
        ``answered``, all by default; ``late`` holds round and client of updates that arrived
        now but were sent in an earlier round: their clients sent nothing in this one.
        """
        state, n_clients = self.state, len(outcome)
        through = np.array([bool(yes) for yes in outcome])
        new = through & [self.is_new(client) for client in range(n_clients)]
        arrived = {client: pending[client] for client in np.flatnonzero(new).tolist()}
        lengths = state.lengths.copy()
        taken, too_long = self._inspect(plan.round, arrived, state.lengths, state.model)
        delivered = np.array([client in taken for client in range(n_clients)])
        refused = new & ~delivered
        staleness = np.full(n_clients, -1, np.int64)
        for client, sent in taken.items():
            staleness[client] = state.version - sent.version
        weights = state.weights.copy()
        arrivals = Arrivals(
            delivered,
            {client: sent.update for client, sent in taken.items()},
            {c: sent.trained for c, sent in taken.items() if sent.trained is not None},
            staleness,
            weights,
            self.client_lr,
            plan.round,
        )
        with undoing(self.algorithm, state, lengths, arrivals):
            moved = self.algorithm.apply(state.model, state.memory, arrivals)
            steps, passed = check_move(self.algorithm, moved, n_clients)
        received = list(self._received)
        state.verdicts[received], state.given[received] = 0, plan.round
        state.verdicts[delivered], state.verdicts[refused] = TAKEN, REFUSED
        fates = np.where(through, state.verdicts, LOST)
        fates[[yes is None for yes in outcome]] = EMPTY
        if plan.present is not None:  # ages of clients that come back count from there
            state.reached[plan.present & ~state.there] = plan.round - 1
            state.there[:] = plan.present
        state.reached[fates == TAKEN] = plan.round
        news = [(when, client, fates[client] == TAKEN) for when, client in late if through[client]]
        for when, client, yes in news:
            fates[client] = EMPTY
            if yes:
                state.reached[client] = when
        state.receivers[list(self._received - self._released)] = False
        began = time.perf_counter()
        alarm = self._learn(plan.round, fates, answered, news)
        self.scheduler_seconds += time.perf_counter() - began
        if self.valuation is not None:
            state.weights = self.valuation.take(plan.round, taken, weights).copy()
        if len(state.worked):
            state.worked[received] = 1
            state.worked[list(self._went_on)] += 1
        state.round, state.version = plan.round, state.version + passed
        expected = answered is not None or len(state.on_the_way) > 0
        return self._record(
            plan, alarm, expected, too_long, delivered=delivered, refused=refused,
            staleness=staleness, weights=weights, steps=steps,
        )  # fmt: skip

    def _learn(
        self,
        t: int,
        fates: NDArray[np.int8],
        answered: NDArray[np.bool_] | None,
        late: Sequence[tuple[int, int, bool]],
    ) -> int | None:
        """Let scheduler and clients learn what they hear in round t; return the alarm."""
        state, coordinator, alarms = self.state, self.coordinator, []
        heard = fates if answered is None else np.where(answered, fates, UNKNOWN)
        delay = len(state.on_the_way)
        if delay:
            alarms.append(coordinator.observe(np.full(len(heard), UNKNOWN)))  # the round is over
            queue = np.vstack([state.on_the_way, heard])
            heard, state.on_the_way[:] = queue[0], queue[1:]
        if t > delay:
            known = np.where(heard > TAKEN, LOST, heard)
            alarms.append(coordinator.observe(known, round=t - delay, teaches=heard <= TAKEN))
        for when, client, yes in late:
            news = coordinator.observe([yes], round=when, clients=[client], teaches=[yes])
            alarms.append(news)
            state.receivers[client] = True
        # Who was refused gets the model too; otherwise it would send the same again. Who has got
        # another since then is busy with that.
        done = (heard == TAKEN) | (heard == REFUSED)
        state.receivers |= done & (state.given <= t - delay)
        return next((alarm for alarm in alarms if alarm is not None), None)

    def _record(
        self,
        plan: Plan,
        alarm: int | None,
        expected: bool,
        too_long: Sequence[int],
        **happened: NDArray[Any],
    ) -> RoundRecord:
        coordinator, valued = self.coordinator, self.valuation
        ages, priorities = plan.round + 1 - self.state.reached, coordinator.priorities
        counted = plan.there(ages)
        nothing = np.full(coordinator.n_clients, np.nan)
        return RoundRecord(
            round=plan.round,
            accuracy=np.nan,
            loss=np.nan,
            client_accuracy=nothing.copy(),
            accuracy_spread=np.nan,
            ages=ages,
            variance=float(age_variance(counted)) if len(counted) else 0.0,
            assignment=plan.assignment,
            alarm=-1 if alarm is None else alarm,
            contributions=nothing.copy() if valued is None else valued.contributions.copy(),
            errors=nothing.copy() if valued is None else valued.errors.copy(),
            priorities=nothing.copy() if priorities is None else priorities,
            channel_means=coordinator.channel_means,
            trained=len(self._received) + len(self._went_on),
            bytes_up=self.payload * int((plan.there(plan.assignment) >= 0).sum()),
            bytes_down=self.payload * len(self._received),
            seconds=0.0,
            expected_ages=coordinator.ages if expected else None,
            present=plan.present,
            too_long=np.isin(np.arange(len(ages)), too_long) if too_long else None,
            **happened,
        )

    # ------------------------------------------------------------------------------ saving

    def to_tensors(self) -> dict[str, torch.Tensor]:
        """Return everything but the counts as tensors, which are views of the present state."""
        tensors = self._views()
        saved = np.frombuffer(self.coordinator.to_bytes(), np.uint8).copy()
        return {**tensors, "coordinator": torch.from_numpy(saved)}

    def _views(self) -> dict[str, torch.Tensor]:
        valued = {} if self.valuation is None else self.valuation.to_tensors()
        return {**self.state.to_tensors(), **valued}

    def restore(self, tensors: Mapping[str, torch.Tensor], round: int, version: int) -> None:
        """Take back what `to_tensors` returned; an error says what does not fit."""
        data = tensors["coordinator"].numpy().tobytes()
        saved, mine = Coordinator.from_bytes(data, "its coordinator"), self.coordinator
        for name in ("n_clients", "n_channels", "seed", "run", "horizon", "fleet_options"):
            if getattr(saved, name) != getattr(mine, name):
                raise ValueError(f"{saved!r} has another {name}")
        if saved.policy.name != mine.policy.name:
            raise ValueError(f"{saved!r} is of another policy than {mine.policy.name!r}")
        if saved.round != round:
            raise ValueError(f"{saved!r} is not of round {round}")
        views = self._views()
        older = {name: views[name] for name in views if name[7:] in NEWER and name not in tensors}
        if "arrays.reached" in older:  # of a version in which every outcome was known at once
            older["arrays.reached"] = torch.from_numpy((round + 1 - saved.ages).astype(np.int64))
        tensors = {**older, **tensors}
        copy_into(views, tensors)
        self.coordinator = saved
        self.state.round, self.state.version = round, version
