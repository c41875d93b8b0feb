"""A grid in this process: Flower's messages, without Flower's processes."""

import itertools
from collections.abc import Callable, Iterable

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from freshband.flower import channel_mod
from freshband.flower.template import client_app as template

RAISED, UNAVAILABLE = 2, 5


def configured(config):
    """Return a mod that gives the app below a run configuration."""

    def mod(message, context, call_next):
        inner = Context(
            context.run_id, context.node_id, context.node_config, context.state, dict(config)
        )
        return call_next(message, inner)

    return mod


def digits_client(config, on_channel=None, change=None) -> ClientApp:
    """Return the template's client; ``change(client, round, reply)`` may alter its answers."""

    def changed(message, context, call_next):
        order = message.content.get("freshband")
        reply = call_next(message, context)
        if change is not None and order is not None and order["task"] == "train":
            reply = change(context.node_config["partition-id"], order["round"], reply) or reply
        return reply

    mods = [configured(config), changed, channel_mod(on_channel, template.measure_error)]
    app = ClientApp(mods=mods)
    app.train()(template.train)
    return app


def identify() -> None:
    """Make this process one that may write messages, as Flower makes a ServerApp's."""
    TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 7, 1, 1


class Playground(Grid):
    """Runs a ClientApp at once, and hands the answer out unless ``holds(client, order)``."""

    def __init__(
        self,
        app: ClientApp,
        n_clients: int,
        holds: Callable[[int, dict], bool] = lambda client, order: False,
    ) -> None:
        identify()
        self.app, self.holds = app, holds
        self.contexts = {
            100 + client: Context(7, 100 + client, {"partition-id": client}, RecordDict(), {})
            for client in range(n_clients)
        }
        self.absent: set[int] = set()  # nodes that are gone
        self.log: list[tuple[int, dict]] = []
        self._replies: dict[str, tuple[int, dict, Message]] = {}
        self._names = itertools.count(1)

    def set_run(self, run) -> None: ...

    @property
    def run(self):
        raise AssertionError("the loop only pushes and pulls")

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None) -> Message:
        raise AssertionError("the loop only pushes and pulls")

    def get_node_ids(self) -> Iterable[int]:
        return [node for node in self.contexts if node not in self.absent]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        names = []
        for message in messages:
            name = str(next(self._names))
            names.append(name)
            message.metadata.__dict__["_message_id"] = name
            node = message.metadata.dst_node_id
            order = dict(message.content["freshband"])
            client = self.contexts[node].node_config["partition-id"]
            self.log.append((client, order))
            if node in self.absent:
                reply = Message(Error(UNAVAILABLE, "gone"), reply_to=message)
            else:
                try:
                    reply = self.app(message, self.contexts[node])
                except Exception as error:
                    reply = Message(Error(RAISED, str(error)), reply_to=message)
            self._replies[name] = (client, order, reply)
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        here = [name for name in message_ids if name in self._replies]
        due = [name for name in here if not self.holds(*self._replies[name][:2])]
        return [self._replies.pop(name)[2] for name in due]

    def send_and_receive(self, messages, *, timeout=None) -> Iterable[Message]:
        raise AssertionError("the loop only pushes and pulls")
