"""The paper's asynchronous round as a loop for a ServerApp, on Flower's Message API.

Each round

1. the coordinator gives every client a channel,
2. the model goes to the clients whose update got through the round before, at first to everybody;
   they train, and answer over their channel; the others' updates stay pending,
3. the server pulls what has arrived, until everybody was heard or the deadline is over,
4. the uplink says what got through, the aggregation applies it, and the scheduler learns from the
   acknowledgements alone.

An answer that comes later than its round is a pending update like any other: it counts in the
round it arrives, as stale as it is.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
from flwr.app import ArrayRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid
from numpy.typing import ArrayLike, NDArray

from freshband.aoi import age_variance
from freshband.coordinator import Coordinator
from freshband.errors import ParameterError
from freshband.federated.records import RoundRecord
from freshband.flower.aggregation import Aggregation, Arrival
from freshband.flower.roster import Roster, pauses
from freshband.flower.saving import load_run, save_run
from freshband.flower.uplinks import Uplink
from freshband.flower.valuation import Valuation
from freshband.flower.wire import (
    FLOATING,
    RECORD,
    Arrays,
    Order,
    Update,
    read_model,
    read_update,
    to_record,
    widened,
)
from freshband.parameters import file_path, whole_number

__all__ = ["AsyncRounds"]

_log = logging.getLogger("flwr")
_NODE_UNAVAILABLE: Final = 5  # Flower's ErrorCode.NODE_UNAVAILABLE

Evaluate = Callable[[int, ArrayRecord], Mapping[str, float] | None]


@dataclasses.dataclass(frozen=True)
class _Sent:
    """A message on its way."""

    client: int
    task: str
    order: int
    expires: float


class AsyncRounds:
    """Plays the rounds; iterate over it for `RoundRecord`s.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        What a ServerApp's main function is given.
    model : ArrayRecord
        The initial model.
    coordinator : Coordinator
        Who plans; its ``n_clients`` are the clients, its ``n_channels`` those of the uplink.
    uplink : Uplink
        What "delivered" means.
    aggregation : Aggregation
        What becomes of what was.
    rounds : int >= 1
        T.
    valuation : Valuation, optional
        Values the clients, for ``+priority`` and contribution weights.
    weights : array of float, shape (n_clients,), optional
        `ζ`, equal by default.
    evaluate : callable, optional
        ``evaluate(round, arrays)`` returns numbers after the round; ``accuracy`` and ``loss`` go
        into the record.
    clip_norm : float > 0, optional
        Longest change of the model one update may ask for; longer ones are shortened.
    ttl : float, optional
        Seconds after which an unanswered order is given up and the client gets the newest model;
        three deadlines by default.
    wait_for_clients : float, default 120
        Seconds to wait for all clients to be there before the first round.
    checkpoint : path, optional
        Folder for checkpoints. If there is one in it, the run goes on from there.
    checkpoint_every : int >= 1, default 1
        Rounds between two.

    Attributes
    ----------
    records : list of RoundRecord
        All rounds so far, those before a restart too.
    scheduler_seconds : list of float
        Seconds the scheduler took to plan and to learn, round by round.
    """

    def __init__(
        self,
        grid: Grid,
        model: ArrayRecord,
        *,
        coordinator: Coordinator,
        uplink: Uplink,
        aggregation: Aggregation,
        rounds: int,
        valuation: Valuation | None = None,
        weights: ArrayLike | None = None,
        evaluate: Evaluate | None = None,
        clip_norm: float | None = None,
        ttl: float | None = None,
        wait_for_clients: float = 120.0,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 1,
    ) -> None:
        n_clients = coordinator.n_clients
        if uplink.n_channels != coordinator.n_channels:
            raise ParameterError(
                f"the uplink must have the coordinator's {coordinator.n_channels} channels, got "
                f"{uplink.n_channels}"
            )
        if coordinator.policy.needs_contributions and valuation is None:
            raise ParameterError(f"{coordinator.policy.name!r} needs a valuation")
        self.grid, self.coordinator, self.uplink = grid, coordinator, uplink
        self.aggregation, self.valuation = aggregation, valuation
        self.rounds: Final = whole_number("rounds", rounds, at_least=1)
        self.clip_norm, self.evaluate = clip_norm, evaluate
        self.ttl = 3 * uplink.deadline if ttl is None else ttl
        self.wait_for_clients = wait_for_clients
        self.model = read_model(model)
        self.version = 0
        self.weights = _read_weights(weights, n_clients)
        self.receivers = np.ones(n_clients, np.bool_)
        self.taken = np.zeros(n_clients, np.int64)  # order of the last update applied
        self.downloaded = np.zeros(n_clients, np.int64)
        self.held: dict[int, Update] = {}
        self.starts: dict[int, Arrays] = {}
        self.records: list[RoundRecord] = []
        self.scheduler_seconds: list[float] = []
        self._orders: dict[int, int] = {}  # client -> round of the order it works on
        self._sent: dict[str, _Sent] = {}
        self._failed: set[int] = set()
        self._roster = Roster(grid, n_clients)
        self._folder = None if checkpoint is None else file_path("checkpoint", checkpoint)
        self._every = whole_number("checkpoint_every", checkpoint_every, at_least=1)
        if self._folder is not None and load_run(self, self._folder):
            _log.info("freshband: going on after round %s", self.round)

    @property
    def round(self) -> int:
        """Rounds done."""
        return len(self.records)

    @property
    def arrays(self) -> ArrayRecord:
        """The model the server hands out at present."""
        return to_record(self.aggregation.served(self.model))

    def __iter__(self) -> Iterator[RoundRecord]:
        while self.round < self.rounds:
            yield self.step()

    def step(self) -> RoundRecord:
        """Play one round; what is due is saved before this returns."""
        if self.round >= self.rounds:
            raise ParameterError("all rounds are played: make the number of rounds larger")
        began = time.perf_counter()
        if not self._roster.nodes:
            self._roster.wait(self.wait_for_clients)
        t = self.round + 1
        self._failed = set()
        assignment = self._plan()
        trained = self._send(t, assignment)
        self._collect(trained)
        record = self._finish(t, assignment, trained, began)
        self.records.append(record)
        if self._folder is not None and (t % self._every == 0 or t == self.rounds):
            save_run(self, self._folder)
        return record

    # ------------------------------------------------------------------------------ steps 1, 2

    def _plan(self) -> NDArray[np.int64]:
        began = time.perf_counter()
        wanted = self.coordinator.policy.needs_contributions
        worth = self.valuation.contributions if wanted and self.valuation is not None else None
        assignment = self.coordinator.plan(worth)
        self.scheduler_seconds[self.round :] = [time.perf_counter() - began]
        return assignment

    def _send(self, t: int, assignment: NDArray[np.int64]) -> set[int]:
        """Order training of those who need the model; return them."""
        self._give_up_expired()
        if len(self._roster.nodes) < len(self.receivers) or self._lost_nodes():
            self._roster.refresh()
        nodes = self._roster.nodes
        who = [int(client) for client in np.flatnonzero(self.receivers) if client in nodes]
        overdue = [client for client in self._orders if client in nodes]
        if who:
            contents = self.aggregation.configure(
                t, to_record(self.model), self.grid, [nodes[client] for client in who]
            )
            self.starts[self.version] = self.model
            for client in who:
                self._push(
                    client, self._order("train", t, client, assignment), contents[nodes[client]]
                )
                self._orders[client] = t
                self.downloaded[client] = self.version
                self.receivers[client] = False
        for client in overdue if self.uplink.resends else []:
            self._push(client, self._order("resend", self._orders[client], client, assignment), {})
        return set(who)

    def _order(self, task: Any, round: int, client: int, assignment: NDArray[np.int64]) -> Order:
        return Order(
            task,
            round=round,
            channel=int(assignment[client]),
            weight=float(self.weights[client]),
            taken=int(self.taken[client]),
            keep=self.uplink.resends,
            value=self.valuation is not None,
        )

    def _push(self, client: int, order: Order, content: Mapping[str, Any]) -> None:
        records = RecordDict({**content, RECORD: order.to_record()})
        message = Message(
            records,
            dst_node_id=self._roster.nodes[client],
            message_type=MessageType.TRAIN,
            ttl=self.ttl,
            group_id=str(self.round + 1),
        )
        # One at a time: of several the grid would not say which it could not take.
        for name in self.grid.push_messages([message]):
            if name:
                expires = time.monotonic() + self.ttl
                self._sent[name] = _Sent(client, order.task, order.round, expires)

    def _give_up_expired(self) -> None:
        now = time.monotonic()
        for name, sent in list(self._sent.items()):
            if sent.expires <= now:
                del self._sent[name]
                if sent.task == "train" and self._orders.get(sent.client) == sent.order:
                    _log.warning("freshband: client %s never answered, asked anew", sent.client)
                    self._release(sent.client)

    def _lost_nodes(self) -> bool:
        return bool(set(self._roster.nodes.values()) - set(self.grid.get_node_ids()))

    def _release(self, client: int) -> None:
        """Forget the order a client works on; it gets the newest model."""
        self._orders.pop(client, None)
        self.receivers[client] = True

    # ------------------------------------------------------------------------------ step 3

    def _collect(self, trained: set[int]) -> None:
        """Pull what arrives until everybody expected was heard or the deadline is over."""
        end = time.monotonic() + self.uplink.deadline
        for pause in pauses():
            if self._sent:
                for reply in self.grid.pull_messages(list(self._sent)):
                    self._take(reply)
            expected = set(self._orders) if self.uplink.waits else trained & set(self._orders)
            left = end - time.monotonic()
            if not expected or left <= 0:
                return
            time.sleep(min(pause, left))

    def _take(self, reply: Message) -> None:
        sent = self._sent.pop(reply.metadata.reply_to_message_id, None)
        if sent is None or self._orders.get(sent.client) != sent.order:
            return  # of an order that was given up, or answered twice
        client = sent.client
        if reply.has_error():
            self._take_error(sent, reply)
            return
        said = reply.content.get(RECORD)
        if sent.task == "resend" and said is not None and "lost" in said:
            _log.warning("freshband: client %s lost its update, asked anew", client)
            self._failed.add(client)
            self._release(client)
            return
        version = int(self.downloaded[client])
        update = read_update(reply, sent.order, version, self.model)
        self.held[client] = self._clipped(update, self.starts[version])
        del self._orders[client]

    def _take_error(self, sent: _Sent, reply: Message) -> None:
        """Hear of a client that failed, or a node that is gone."""
        if sent.task == "resend":
            return  # the order itself may still be answered
        _log.warning("freshband: client %s failed: %s", sent.client, reply.error.reason)
        if reply.error.code != _NODE_UNAVAILABLE:  # its message came through, only not an update
            self._failed.add(sent.client)
        self._release(sent.client)

    def _clipped(self, update: Update, start: Arrays) -> Update:
        if self.clip_norm is None or update.problem:
            return update
        began = {name: widened(a) for name, a in start.items() if a.dtype.kind in FLOATING}
        way = {name: widened(update.arrays[name]) - before for name, before in began.items()}
        length = math.hypot(*(float(np.linalg.norm(part)) for part in way.values()))
        if length <= self.clip_norm:
            return update
        share = self.clip_norm / length
        shorter = {
            name: np.asarray(before + share * way[name], start[name].dtype)
            for name, before in began.items()
        }
        return dataclasses.replace(update, arrays={**update.arrays, **shorter})

    # ------------------------------------------------------------------------------ step 4

    def _finish(
        self, t: int, assignment: NDArray[np.int64], trained: set[int], began: float
    ) -> RoundRecord:
        """Ask the uplink, aggregate, learn; return what happened."""
        n_clients = len(self.receivers)
        arrived = np.array([client in self.held for client in range(n_clients)])
        outcome = self._acknowledged(t, assignment, arrived)
        refused = np.array([yes is True for yes in outcome])
        delivered = refused.copy()
        for client in np.flatnonzero(delivered).tolist():
            if self.held[client].problem:
                _log.warning("freshband: refused client %s: %s", client, self.held[client].problem)
                delivered[client] = False
        refused &= ~delivered
        arrivals = [self._arrival(client) for client in np.flatnonzero(delivered).tolist()]
        weights = self.weights.copy()
        self.model, steps, passed = self.aggregation.aggregate(t, self.model, arrivals, weights)
        alarm = self._learn([None if no else yes for yes, no in zip(outcome, refused, strict=True)])
        if self.valuation is not None:
            self.weights = self.valuation.take(t, arrivals, weights, self.model)
        staleness = np.full(n_clients, -1, np.int64)
        for arrival in arrivals:
            staleness[arrival.client] = arrival.staleness
            self.taken[arrival.client] = arrival.update.order
        for client in np.flatnonzero(delivered | refused).tolist():
            del self.held[client]
            self.receivers[client] = True
        self.version += passed
        in_use = {int(self.downloaded[client]) for client in [*self._orders, *self.held]}
        self.starts = {version: self.starts[version] for version in in_use}
        happened = {"assignment": assignment, "delivered": delivered, "refused": refused,
                    "staleness": staleness, "weights": weights, "steps": steps}  # fmt: skip
        return self._record(t, happened, alarm, len(trained), began)

    def _acknowledged(
        self, t: int, assignment: NDArray[np.int64], arrived: NDArray[np.bool_]
    ) -> list[bool | None]:
        """Return what the uplink says; a failed client's channel is not known to be bad."""
        outcome = list(self.uplink.acknowledge(t, assignment, arrived))
        for client, here in enumerate(arrived.tolist()):
            if outcome[client] and not here:
                raise ParameterError("the uplink cannot deliver what did not arrive")
            if client in self._failed or (client not in self._roster.nodes and not here):
                outcome[client] = None
        return outcome

    def _arrival(self, client: int) -> Arrival:
        update = self.held[client]
        if update.order <= self.taken[client]:
            raise AssertionError(f"update {update.order} of client {client} was taken already")
        return Arrival(client, update, self.starts[update.version], self.version - update.version)

    def _learn(self, outcome: list[bool | None]) -> int:
        began = time.perf_counter()
        alarm = self.coordinator.observe(outcome)
        self.scheduler_seconds[-1] += time.perf_counter() - began
        return -1 if alarm is None else alarm

    def _record(
        self, t: int, happened: dict[str, NDArray[Any]], alarm: int, trained: int, began: float
    ) -> RoundRecord:
        found = {} if self.evaluate is None else dict(self.evaluate(t, self.arrays) or {})
        nothing = np.full(len(self.receivers), np.nan)
        valued, priorities = self.valuation, self.coordinator.priorities
        size = sum(array.nbytes for array in self.model.values()) + 8 * (valued is not None)
        ages = self.coordinator.ages
        return RoundRecord(
            round=t,
            accuracy=float(found.get("accuracy", np.nan)),
            loss=float(found.get("loss", np.nan)),
            client_accuracy=nothing.copy(),
            accuracy_spread=np.nan,
            ages=ages,
            variance=float(age_variance(ages)),
            alarm=alarm,
            contributions=nothing.copy() if valued is None else valued.contributions.copy(),
            errors=nothing.copy() if valued is None else valued.errors.copy(),
            priorities=nothing.copy() if priorities is None else priorities,
            channel_means=self.coordinator.channel_means,
            trained=trained,
            bytes_up=size * int((happened["assignment"] >= 0).sum()),
            bytes_down=size * trained,
            seconds=time.perf_counter() - began,
            **happened,
        )


def _read_weights(weights: ArrayLike | None, n_clients: int) -> NDArray[np.float64]:
    if weights is None:
        return np.full(n_clients, 1.0 / n_clients)
    zeta = np.asarray(weights, np.float64)
    if zeta.shape != (n_clients,) or not np.isfinite(zeta).all() or (zeta < 0).any():
        raise ParameterError(f"weights must be {n_clients} numbers >= 0, got {weights!r}")
    if not zeta.sum() > 0:
        raise ParameterError("weights must not all be 0")
    return np.asarray(zeta / zeta.sum())
