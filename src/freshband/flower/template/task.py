"""What is learned: the data, who holds it, the model and how a client trains it.

Put your own here. The apps need `Task.model`, `Task.train`, `Task.wrong` and `Task.examine`.
"""

from __future__ import annotations

import functools

import torch
from flwr.app import ArrayRecord
from torch import nn

from freshband.federated import Training, build_model, load_dataset, split_samples
from freshband.federated.batches import Batches


class Task:
    """The data set of the settings, split over the clients; each client uses its own part."""

    def __init__(self, settings: Training) -> None:
        torch.set_num_threads(1)  # clients share this machine
        self.settings = settings
        self.dataset = load_dataset(
            settings.dataset, seed=settings.seed, run=settings.run, **settings.dataset_options
        ).hold_out(settings.held_out)
        self.partition = split_samples(
            self.dataset.train_labels,
            settings.clients,
            scheme=settings.partition,
            val_fraction=settings.val_fraction,
            seed=settings.seed,
            run=settings.run,
            **settings.partition_options,
        )
        self.batches = Batches(
            settings.seed, settings.run, settings.local_steps, settings.batch_size
        )

    def model(self, arrays: ArrayRecord | None = None) -> nn.Module:
        """Return the model: with its initial weights, or with these."""
        data, chosen = self.dataset, self.settings
        name = chosen.model or data.default_model
        module = build_model(
            name, data.shape, data.n_classes, chosen.seed, chosen.run, **chosen.model_options
        )
        if arrays is not None:
            module.load_state_dict(arrays.to_torch_state_dict())
        return module

    def train(self, module: nn.Module, client: int, round: int) -> int:
        """Train on a client's samples for a round; return the number of samples."""
        held = self.partition.train[client]
        optimiser = torch.optim.SGD(module.parameters(), lr=self.settings.client_lr)
        module.train()
        for samples in self.batches.draw(held, round=round, client=client):
            images = self.dataset.normalise(self.dataset.train_images[samples])
            loss = nn.functional.cross_entropy(module(images), self.dataset.train_labels[samples])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        return len(held)

    def wrong(self, module: nn.Module, client: int) -> float:
        """Return the share of a client's validation samples that a model gets wrong."""
        samples = self.partition.val[client][: self.settings.n_error_samples]
        answers = self._scores(module, self.dataset.train_images[samples]).argmax(dim=1)
        right = answers == self.dataset.train_labels[samples]
        return 1.0 - int(right.sum()) / len(samples)

    def examine(self, module: nn.Module) -> dict[str, float]:
        """Return accuracy and loss on the test set, which only the server has."""
        labels = self.dataset.test_labels
        scores = self._scores(module, self.dataset.test_images)
        right = scores.argmax(dim=1) == labels
        loss = nn.functional.cross_entropy(scores, labels)
        return {"accuracy": int(right.sum()) / len(labels), "loss": float(loss)}

    def _scores(self, module: nn.Module, images: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            found: torch.Tensor = module.eval()(self.dataset.normalise(images))
        return found


@functools.lru_cache(maxsize=1)
def _task(settings: str) -> Task:
    return Task(Training.model_validate_json(settings))


def open_task(settings: Training) -> Task:
    """Return the task of these settings; each process loads it once."""
    return _task(settings.model_dump_json())
