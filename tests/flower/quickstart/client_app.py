"""The client of the app."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from tests.flower.quickstart.task import Net, load_data
from tests.flower.quickstart.task import evaluate as evaluate_fn
from tests.flower.quickstart.task import train as train_fn

# Flower ClientApp
app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    """Train the model on local data."""
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    partition_id = context.node_config["partition-id"]
    num_partitions = context.node_config["num-partitions"]
    data, _ = load_data(partition_id, num_partitions)
    loss = train_fn(model, data, 1, msg.content["config"]["lr"])
    metrics = {"train_loss": loss, "num-examples": len(data[0])}
    content = RecordDict(
        {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(metrics)}
    )
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    """Evaluate the model on local data."""
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    partition_id = context.node_config["partition-id"]
    num_partitions = context.node_config["num-partitions"]
    _, data = load_data(partition_id, num_partitions)
    loss, accuracy = evaluate_fn(model, data)
    metrics = {"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(data[0])}
    return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)
