"""Runs in Flower's environment: rounds of its simulation engine, one for each line it reads.

Arguments: the folder of the problem, and the number of clients trained at a time. Prints ``ready``,
then ``seconds S`` for each round; the model after the first is left in ``flower.npz``.
"""

import os
import sys
import time
from pathlib import Path

os.environ |= {
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "PYTHONPATH": str(Path(__file__).parent),  # so that child processes find plain_loop
}

import numpy as np  # after the settings above
import plain_loop
import ray
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

FOLDER, AT_A_TIME = Path(sys.argv[1]), int(sys.argv[2])
ROUNDS = 100_000
client_app, server_app = ClientApp(), ServerApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Make one client's local steps."""
    torch.set_num_threads(1)
    data = plain_loop.read_once(FOLDER)
    model = plain_loop.plain_cnn8()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    plain_loop.train_client(model, data, int(context.node_config["partition-id"]))
    content = RecordDict(
        {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"num-examples": data.batches[0].numel()}),
        }
    )
    return Message(content=content, reply_to=message)


class Stepped(FedAvg):
    """Federated averaging that waits for a line before every round."""

    def configure_train(self, server_round, arrays, config, grid):
        """Begin a round after reading a line."""
        if server_round == 1:
            while len(list(grid.get_node_ids())) < len(plain_loop.read_once(FOLDER).batches):
                time.sleep(0.1)
            print("ready", flush=True)
        if not sys.stdin.readline():
            ray.shutdown()
            os._exit(0)  # the simulation cannot be ended otherwise
        self.began = time.perf_counter()
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round, replies):
        """End a round."""
        arrays, metrics = super().aggregate_train(server_round, replies)
        print("seconds", time.perf_counter() - self.began, flush=True)
        if server_round == 1:
            state = {name: w.numpy() for name, w in arrays.to_torch_state_dict().items()}
            np.savez(FOLDER / "flower.npz", **state)
        return arrays, metrics


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    """Run federated averaging until the input ends."""
    begin = ArrayRecord(plain_loop.read_once(FOLDER).model().state_dict())
    Stepped(fraction_evaluate=0.0).start(grid, begin, num_rounds=ROUNDS)


if __name__ == "__main__":
    run_simulation(
        server_app,
        client_app,
        num_supernodes=len(plain_loop.read_once(FOLDER).batches),
        backend_config={
            "init_args": {"num_cpus": AT_A_TIME, "include_dashboard": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
