"""Which Flower node is which client."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator
from typing import Final

import numpy as np
from flwr.app import ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from freshband.flower._wire import RECORD, Order

_log = logging.getLogger("flwr")
_PATIENCE: Final = 5.0  # seconds before a node that failed to answer is asked again
_TTL: Final = 600.0  # seconds to answer; Flower says sooner if a node is gone


class Roster:
    """Asks nodes which client they are, and remembers it.

    A node answers with its ``partition-id``. The first to claim a client keeps it for as long as
    Flower knows the node, so no other node can take its place.
    """

    def __init__(self, grid: Grid, n_clients: int) -> None:
        self.grid = grid
        self.n_clients = n_clients
        self.nodes: dict[int, int] = {}  # by client
        self._asked: dict[str, int] = {}  # nodes, by message
        self._due: dict[int, float] = {}  # when to ask a node again

    def wait(self, seconds: float) -> None:
        """Wait until every client is there, for at most this many seconds."""
        end = time.monotonic() + seconds
        for pause in pauses():
            self.refresh()
            if len(self.nodes) == self.n_clients or time.monotonic() >= end:
                break
            time.sleep(min(pause, max(0.0, end - time.monotonic())))
        absent = sorted(set(range(self.n_clients)) - set(self.nodes))
        if absent:
            _log.warning("freshband: continuing without clients %s, which are absent", absent)

    def keep_up(self, seconds: float) -> NDArray[np.bool_] | None:
        """Follow nodes that come and go; return which clients are there, or None if all are.

        Where nobody is known yet, wait for at most this many seconds.
        """
        if not self.nodes:
            self.wait(seconds)
        lost = set(self.nodes.values()) - set(self.grid.get_node_ids())
        if lost or len(self.nodes) < self.n_clients:
            self.refresh()
        here = np.array([client in self.nodes for client in range(self.n_clients)])
        return None if here.all() else here

    def refresh(self) -> None:
        """Read answers, ask new nodes, forget nodes that are gone; do not wait."""
        for reply in self.grid.pull_messages(list(self._asked)) if self._asked else []:
            node = self._asked.pop(reply.metadata.reply_to_message_id, None)
            if node is None:
                continue
            said = reply.content.get(RECORD) if reply.has_content() else None
            if isinstance(said, MetricRecord):
                self._enter(node, said.get("client"))
            else:  # it failed: ask again later
                why = reply.error.reason if reply.has_error() else "no answer of channel_mod's"
                _log.warning("freshband: node %s cannot say who it is: %s", node, why)
                self._due[node] = time.monotonic() + _PATIENCE
        present, now = set(self.grid.get_node_ids()), time.monotonic()
        self.nodes = {client: node for client, node in self.nodes.items() if node in present}
        self._due = {node: when for node, when in self._due.items() if node in present}
        for node in sorted(node for node in present if self._due.get(node, now) <= now):
            content = RecordDict({RECORD: Order("hello").to_record(), "config": ConfigRecord()})
            message = Message(content, dst_node_id=node, message_type=MessageType.TRAIN, ttl=_TTL)
            for name in self.grid.push_messages([message]):
                if name:
                    self._asked[name] = node
                    self._due[node] = math.inf

    def _enter(self, node: int, client: object) -> None:
        if not isinstance(client, int) or not 0 <= client < self.n_clients:
            _log.warning("freshband: node %s says it is client %s, ignored", node, client)
        elif client in self.nodes:
            _log.warning("freshband: node %s says it is client %s, as another", node, client)
        else:
            self.nodes[client] = node


def pauses(first: float = 0.01, most: float = 0.5) -> Iterator[float]:
    """Yield longer and longer pauses in seconds."""
    pause = first
    while True:
        yield pause
        pause = min(1.5 * pause, most)
