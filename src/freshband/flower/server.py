"""The round of `freshband.federated.server` over Flower's Message API: orders out, answers in.

The server pulls answers until every client is heard or the deadline is over. The uplink says which
of them got through, and the scheduler learns from these acknowledgements alone. An answer that
comes after its round is a pending update: it counts in the round it arrives, as stale as it is.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import torch
from flwr.app import ArrayRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from freshband.coordinator import Coordinator
from freshband.errors import ParameterError
from freshband.federated._state import Pending
from freshband.federated._valuation import Valuation
from freshband.federated.records import RoundRecord
from freshband.federated.server import FederatedServer, Plan
from freshband.federated.uplink import SimulatedUplink, Uplink
from freshband.flower._roster import Roster, pauses
from freshband.flower._rows import Rows, open_rule
from freshband.flower._saving import load_run, save_run
from freshband.flower._wire import (
    RECORD,
    Arrays,
    Order,
    Task,
    Update,
    read_model,
    read_update,
    to_record,
)  # fmt: skip
from freshband.flower.aggregation import PaperAggregation, StrategyAggregation
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
    round: int  # in which it was sent
    expires: float


class AsyncRounds:
    """Plays the rounds; iterate over it for `RoundRecord`s.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        The grid that Flower gives to a ServerApp's main function.
    model : ArrayRecord
        The initial model.
    uplink : Uplink
        It decides which updates count as delivered.
    aggregation : StrategyAggregation or PaperAggregation
        It makes a new model from the updates that were delivered.
    coordinator, valuation, **server
        As for `freshband.federated.server.FederatedServer`: also ``rounds``, ``weights``,
        ``local_rounds``, ``length_limit`` and ``clip_norm``.
    evaluate : callable, optional
        ``evaluate(round, arrays)`` returns numbers after the round; ``accuracy`` and ``loss`` go
        into the record.
    ttl : float, optional
        Seconds after which an unanswered order is given up and the client gets the newest model;
        three deadlines by default.
    wait_for_clients : float, default 120
        Seconds to wait for all clients before the first round.
    checkpoint : path, optional
        Folder for checkpoints. If there is one in it, the run continues from there.
    checkpoint_every : int >= 1, default 1
        Number of rounds between two checkpoints.

    Attributes
    ----------
    records : list of RoundRecord
        All rounds so far, including those before a restart.
    scheduler_seconds : list of float
        Seconds per round that the scheduler took to plan and to learn.
    """

    def __init__(
        self,
        grid: Grid,
        model: ArrayRecord,
        *,
        coordinator: Coordinator,
        uplink: Uplink,
        aggregation: StrategyAggregation | PaperAggregation,
        valuation: Valuation | None = None,
        evaluate: Evaluate | None = None,
        ttl: float | None = None,
        wait_for_clients: float = 120.0,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 1,
        **server: Any,
    ) -> None:
        n_clients = coordinator.n_clients
        if uplink.n_channels != coordinator.n_channels:
            raise ParameterError(
                f"the uplink must have the coordinator's {coordinator.n_channels} channels, got "
                f"{uplink.n_channels}"
            )
        self.grid, self.uplink = grid, uplink
        self.aggregation, self.evaluate = aggregation, evaluate
        self.ttl = 3 * uplink.deadline if ttl is None else ttl
        self.wait_for_clients = wait_for_clients
        self.taken = np.zeros(n_clients, np.int64)  # order of the last update applied
        self.downloaded = np.zeros(n_clients, np.int64)
        self.held: dict[int, Update] = {}
        self.starts: dict[int, Arrays] = {}
        self.records: list[RoundRecord] = []
        self.scheduler_seconds: list[float] = []
        self._orders: dict[int, int] = {}  # client -> round of the order it works on
        self._sent: dict[str, _Sent] = {}
        self._failed: set[int] = set()
        self._patient = getattr(uplink, "patient", False)
        self._waiting: set[int] = set()  # clients that trained and wait for a channel
        self._late: list[tuple[int, int]] = []  # rounds and clients of updates that came late
        self._roster = Roster(grid, n_clients)
        self.rows = Rows(read_model(model))
        rule, client_lr = open_rule(aggregation, self.rows, valuation, self.held, self.starts)
        self.server = FederatedServer(
            self.rows.row(self.rows.rest),
            coordinator=coordinator,
            algorithm=rule,
            client_lr=client_lr,
            payload=self.rows.nbytes,
            valuation=valuation,
            keeps_models=False,
            **server,
        )
        self._folder = None if checkpoint is None else file_path("checkpoint", checkpoint)
        self._every = whole_number("checkpoint_every", checkpoint_every, at_least=1)
        if self._folder is not None and load_run(self, self._folder):
            _log.info("freshband: going on after round %s", self.round)

    @property
    def model(self) -> Arrays:
        """The newest model, as new arrays."""
        return self.rows.arrays(self.server.state.model)

    @property
    def round(self) -> int:
        """The number of rounds played."""
        return len(self.records)

    @property
    def arrays(self) -> ArrayRecord:
        """The model the server hands out at present."""
        return to_record(self.rows.arrays(self.server.served))

    def __iter__(self) -> Iterator[RoundRecord]:
        while self.round < self.server.rounds:
            yield self.step()

    def step(self) -> RoundRecord:
        """Play one round; a checkpoint that is due is saved before this returns."""
        began = time.perf_counter()
        self._give_up_expired()
        plan = self._plan()
        self._collect(self._send(plan))
        outcome, answered = self._acknowledged(plan)
        arrived = {
            client: self._pending(client)
            for client, yes in enumerate(outcome)
            if yes and self.server.is_new(client)
        }
        record = self.server.finish(plan, outcome, arrived, answered=answered, late=self._late)
        self.rows.round(self.server.state.model)
        self._forget(record)
        found = {} if self.evaluate is None else dict(self.evaluate(plan.round, self.arrays) or {})
        record = dataclasses.replace(
            record,
            accuracy=float(found.get("accuracy", np.nan)),
            loss=float(found.get("loss", np.nan)),
            seconds=time.perf_counter() - began,
        )
        self.records.append(record)
        self.scheduler_seconds.append(self.server.scheduler_seconds)
        last = plan.round == self.server.rounds
        if self._folder is not None and (plan.round % self._every == 0 or last):
            save_run(self, self._folder)
        return record

    # ------------------------------------------------------------------------------ steps 1, 2

    def _plan(self) -> Plan:
        """Plan the round for the clients that are there."""
        here = known = self._roster.keep_up(self.wait_for_clients)
        if not isinstance(self.uplink, SimulatedUplink):
            return self.server.plan(here, known)
        t = self.round + 1
        told, available = self.uplink.told(t)
        return self.server.plan(_both(here, self.uplink.present(t)), _both(known, told), available)

    def _send(self, plan: Plan) -> set[int]:
        """Order training of clients that get the model or go on; return them."""
        self._failed, self._late = set(), []
        nodes = self._roster.nodes
        for client in plan.receivers.tolist():
            self.held.pop(client, None)  # where everybody trains, what was lost is dropped
        fresh = [client for client in plan.receivers.tolist() if client in nodes]
        late = {client for client in self._orders if client in nodes} - set(fresh)
        again = {one for one in late if plan.assignment[one] >= 0} if self.uplink.resends else set()
        self._waiting -= {*fresh, *again}
        waiting = {client for client, update in self.held.items() if not update.problem} - late
        further = [one for one in plan.further.tolist() if one in nodes and one in waiting | again]
        contents: Mapping[int, RecordDict] = {}
        if fresh or further:
            model, to = self.model, [nodes[client] for client in (*fresh, *further)]
            contents = self.aggregation.configure(plan.round, to_record(model), self.grid, to)
            self.starts[self.server.hand_out(fresh)] = model
            self.downloaded[fresh] = self.server.state.version
            self.server.go_on(further)
        for client in sorted({*fresh, *further, *again}):
            content = dict(contents.get(nodes[client], {}))
            if client in further:  # from its own model, which the server has or the client kept
                own = to_record(self.held[client].arrays if client in self.held else {})
                content = {n: own if isinstance(r, ArrayRecord) else r for n, r in content.items()}
            if client not in again:
                self._orders[client] = plan.round
            task: Task = "resend" if client in again else "train"
            order = self._order(task, client, plan, client in further)
            self._push(client, order, content, plan.round)
        return {*fresh, *further}

    def _order(self, task: Task, client: int, plan: Plan, further: bool) -> Order:
        return Order(
            task,
            round=self._orders[client],
            channel=int(plan.assignment[client]),
            weight=float(self.server.state.weights[client]),
            taken=int(self.taken[client]),
            keep=self.uplink.resends or self.server.local_rounds > 1,
            value=self.server.valuation is not None and not further,
            further=further,
            hold=self.uplink.resends and bool(plan.assignment[client] < 0),
        )

    def _push(self, client: int, order: Order, content: Mapping[str, Any], t: int) -> None:
        records = RecordDict({**content, RECORD: order.to_record()})
        message = Message(
            records,
            dst_node_id=self._roster.nodes[client],
            message_type=MessageType.TRAIN,
            ttl=self.ttl,
            group_id=str(t),
        )
        # One at a time: of several, the grid does not say which it could not take.
        for name in self.grid.push_messages([message]):
            if name:
                expires = time.monotonic() + self.ttl
                self._sent[name] = _Sent(client, order.task, order.round, t, expires)

    def _give_up_expired(self) -> None:
        now = time.monotonic()
        for name, sent in list(self._sent.items()):
            if sent.expires <= now:
                del self._sent[name]
                if sent.task == "train" and self._orders.get(sent.client) == sent.order:
                    _log.warning("freshband: client %s never answered, asked again", sent.client)
                    self._release(sent.client)

    def _release(self, client: int) -> None:
        """Forget a client's order; it gets the newest model, unless it has an update waiting."""
        self._orders.pop(client, None)
        if client not in self.held:
            self.server.release(client)

    # ------------------------------------------------------------------------------ step 3

    def _collect(self, trained: set[int]) -> None:
        """Pull answers until all expected clients are heard or the deadline is over."""
        end = time.monotonic() + self.uplink.deadline
        for pause in pauses():
            if self._sent:
                for reply in self.grid.pull_messages(list(self._sent)):
                    self._take(reply)
            expected = set(self._orders) - self._waiting
            expected = expected if self.uplink.waits else expected & trained
            left = end - time.monotonic()
            if not expected or left <= 0:
                return
            time.sleep(min(pause, left))

    def _take(self, reply: Message) -> None:
        sent = self._sent.pop(reply.metadata.reply_to_message_id, None)
        if sent is None or self._orders.get(sent.client) != sent.order:
            return  # the order was given up, or is answered twice
        client = sent.client
        if reply.has_error():
            self._take_error(sent, reply)
            return
        said = reply.content.get(RECORD)
        if sent.task == "resend" and said is not None and "lost" in said:
            _log.warning("freshband: client %s lost its update, asked again", client)
            self._failed.add(client)
            self._release(client)
            return
        if said is not None and "waiting" in said:
            self._waiting.add(client)
            return
        most = self.server.coordinator.fleet_options.max_delay
        if self._patient and 0 < self.round + 1 - sent.round <= most:
            self._late.append((sent.round, client))
        version = int(self.downloaded[client])
        update = read_update(reply, sent.order, version, self.rows.like)
        if client in self.held:  # it went on; its error belongs to the model it was given
            update = dataclasses.replace(update, error=self.held[client].error)
        self.held[client] = update
        del self._orders[client]

    def _take_error(self, sent: _Sent, reply: Message) -> None:
        """Note a client that failed, or a node that is gone."""
        if sent.task == "resend":
            return  # the order itself may still be answered
        _log.warning("freshband: client %s failed: %s", sent.client, reply.error.reason)
        if reply.error.code != _NODE_UNAVAILABLE:  # a message came through, but no update
            self._failed.add(sent.client)
        self._release(sent.client)

    # ------------------------------------------------------------------------------ step 4

    def _acknowledged(self, plan: Plan) -> tuple[list[bool | None], NDArray[np.bool_] | None]:
        """Return what the uplink says, and which of it the scheduler learns; None for all.

        Nothing is known of the channel of a client that failed.
        """
        arrived = np.array([client in self.held for client in range(len(self.taken))])
        outcome = list(self.uplink.acknowledge(plan.round, plan.assignment, arrived))
        on_the_way = {sent.client for sent in self._sent.values() if sent.round == plan.round}
        for client, here in enumerate(arrived.tolist()):
            if outcome[client] and not here:
                raise ParameterError("the uplink cannot deliver what did not arrive")
            silent = client in self._failed or client not in self._roster.nodes
            if not here and (silent or (self._patient and client not in on_the_way)):
                outcome[client] = None
        if isinstance(self.uplink, SimulatedUplink):
            return outcome, self.uplink.answered(plan.round)
        return outcome, np.array([yes is not False for yes in outcome]) if self._patient else None

    def _pending(self, client: int) -> Pending:
        """Return an update as the server takes it."""
        update = self.held[client]
        if update.problem:
            return Pending(torch.empty(0), update.version, problem=update.problem)
        if update.order <= self.taken[client]:
            raise AssertionError(f"update {update.order} of client {client} was taken already")
        trained = self.rows.row(update.arrays)
        change = torch.sub(self.rows.row(self.starts[update.version]), trained)
        return Pending(change.div_(self.server.client_lr), update.version, trained, update.error)

    def _forget(self, record: RoundRecord) -> None:
        """Drop updates the server took or refused, and models no client works on."""
        for client in np.flatnonzero(record.delivered | record.refused).tolist():
            update = self.held[client]
            if self.server.state.receivers[client]:  # else it may arrive again
                del self.held[client]
            self._orders.pop(client, None)  # to go on from it
            if record.delivered[client]:
                self.taken[client] = update.order
            else:
                why = update.problem or "it is longer than the limit, or than its type can hold"
                _log.warning("freshband: refused client %s: %s", client, why)
        in_use = {int(self.downloaded[client]) for client in [*self._orders, *self.held]}
        for version in set(self.starts) - in_use:
            del self.starts[version]


def _both(
    one: NDArray[np.bool_] | None, other: NDArray[np.bool_] | None
) -> NDArray[np.bool_] | None:
    """Return where both masks hold; None holds everywhere."""
    return other if one is None else one if other is None else one & other
