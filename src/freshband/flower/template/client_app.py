"""The client: trains as in any Flower app; freshband's mod does the rest."""

from __future__ import annotations

import logging
from typing import cast

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from freshband.flower import channel_mod, read_training
from freshband.flower.template.task import open_task


def on_channel(channel: int, context: Context) -> None:
    """Switch to the assigned channel; the update leaves when this returns.

    Here a real client would tune its radio, or choose an interface or a gateway.
    """
    client = context.node_config["partition-id"]
    logging.getLogger("flwr").debug("client %s sends on channel %s", client, channel)


def measure_error(arrays: ArrayRecord, context: Context) -> float:
    """Return the share of this client's validation samples that a model gets wrong."""
    task = open_task(read_training(context.run_config))
    return task.wrong(task.model(arrays), int(context.node_config["partition-id"]))


app = ClientApp(mods=[channel_mod(on_channel, measure_error)])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the model that came on this client's samples, and send it back."""
    task = open_task(read_training(context.run_config))
    module = task.model(message.content.array_records["arrays"])
    client = int(context.node_config["partition-id"])
    round = cast(int, message.content.config_records["config"]["server-round"])
    n_examples = task.train(module, client, round)
    content = RecordDict(
        {
            "arrays": ArrayRecord(module.state_dict()),
            "metrics": MetricRecord({"num-examples": n_examples}),
        }
    )
    return Message(content, reply_to=message)
