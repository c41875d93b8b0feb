"""Runs in pfl's environment: rounds of its simulation, one for each line it reads.

Argument: the folder of the problem. Prints ``ready``, then ``seconds S`` for each round; the model
after the first is left in ``pfl.npz``.
"""

import itertools
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel

sys.path.insert(0, str(Path(__file__).parent))
from plain_loop import LR, Problem

torch.set_num_threads(1)
FOLDER = Path(sys.argv[1])
problem = Problem.read(FOLDER)
n_clients, n_steps, batch_size = problem.batches.shape


class Module(torch.nn.Module):
    """The plain model with the loss that pfl needs."""

    def __init__(self) -> None:
        super().__init__()
        self.model = problem.model()

    def loss(self, images, labels):
        """Return the loss to minimise."""
        return torch.nn.functional.cross_entropy(self.model(images), labels)

    def metrics(self, images, labels):
        """Return no metrics."""
        return {}


class Stepped(TrainingProcessCallback):
    """Waits for a line before every round."""

    def _wait(self) -> None:
        if not sys.stdin.readline():
            os._exit(0)
        self.began = time.perf_counter()

    def on_train_begin(self, *, model):
        """Report that everything is set up."""
        print("ready", flush=True)
        self._wait()
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        """End a round, and begin the next after reading a line."""
        print("seconds", time.perf_counter() - self.began, flush=True)
        if central_iteration == 0:
            state = {name: w.numpy() for name, w in module.model.state_dict().items()}
            np.savez(FOLDER / "pfl.npz", **state)
        self._wait()
        return False, Metrics()


module = Module()
users = {}
for client in range(n_clients):
    samples = problem.batches[client].reshape(-1)
    users[client] = (problem.images[samples], problem.labels[samples])
turn = itertools.cycle(range(n_clients))
data = FederatedDataset(
    lambda client: Dataset(raw_data=users[client], user_id=str(client)), lambda: next(turn)
)
FederatedAveraging().run(
    algorithm_params=NNAlgorithmParams(
        central_num_iterations=100_000,
        evaluation_frequency=1_000_000,  # only in the first round, which is not timed
        train_cohort_size=n_clients,
        val_cohort_size=None,
    ),
    backend=SimulatedBackend(training_data=data, val_data=None),
    model=PyTorchModel(
        module,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(module.parameters(), lr=1.0),
    ),
    model_train_params=NNTrainHyperParams(
        local_num_epochs=1, local_learning_rate=LR, local_batch_size=batch_size
    ),
    callbacks=[Stepped()],
)
