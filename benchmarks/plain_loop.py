"""Federated averaging in plain PyTorch, one client after another.

The baseline of the training benchmarks, and the code that the peers' scripts share with it; it
imports only torch and numpy, because those scripts run in other environments.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

__all__ = ["LR", "Problem", "plain_cnn8", "plain_round", "read_once", "train_client"]

LR = 0.05
WIDTHS = (32, 64, 128)


def plain_cnn8() -> nn.Sequential:
    """Return the eight layers in the usual order: convolution, ReLU, pooling."""
    layers: list[nn.Module] = []
    inputs = 3
    for width in WIDTHS:
        layers += [
            nn.Conv2d(inputs, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
        inputs = width
    layers += [nn.Flatten(), nn.Linear(inputs * 16, 128), nn.ReLU(), nn.Linear(128, 10)]
    return nn.Sequential(*layers)


@dataclasses.dataclass(frozen=True)
class Problem:
    """The work of a round, in a folder that every contestant reads.

    Attributes
    ----------
    images : tensor of float32, shape (n, 3, 32, 32)
        Normalised.
    labels : tensor of int64, shape (n,)
    batches : tensor of int64, shape (clients, steps, batch)
        The samples of every step.
    weights : dict of arrays
        The initial model of all contestants.
    """

    images: torch.Tensor
    labels: torch.Tensor
    batches: torch.Tensor
    weights: dict[str, npt.NDArray[Any]]

    def write(self, folder: Path) -> None:
        """Write the problem into a folder."""
        for name in ("images", "labels", "batches"):
            np.save(folder / f"{name}.npy", getattr(self, name).numpy())
        np.savez(folder / "weights.npz", allow_pickle=False, **self.weights)

    @classmethod
    def read(cls, folder: Path) -> Problem:
        """Read the problem written into a folder."""
        parts = {
            name: torch.from_numpy(np.load(folder / f"{name}.npy"))
            for name in ("images", "labels", "batches")
        }
        with np.load(folder / "weights.npz") as archive:
            weights = {name: archive[name] for name in archive.files}
        return cls(weights=weights, **parts)

    def model(self) -> nn.Sequential:
        """Return the initial model of all contestants."""
        model = plain_cnn8()
        model.load_state_dict({name: torch.from_numpy(w) for name, w in self.weights.items()})
        return model


@functools.cache
def read_once(folder: Path) -> Problem:
    """Read the problem once per process."""
    return Problem.read(folder)


def train_client(model: nn.Module, problem: Problem, client: int) -> None:
    """Make one client's local steps, in place."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    for samples in problem.batches[client]:
        optimizer.zero_grad()
        scores = model(problem.images[samples])
        loss = nn.functional.cross_entropy(scores, problem.labels[samples])
        loss.backward()
        optimizer.step()


def plain_round(model: nn.Module, problem: Problem) -> None:
    """Train every client from the same model, one after another, and average them in place."""
    states = []
    for client in range(len(problem.batches)):
        local = copy.deepcopy(model)
        train_client(local, problem, client)
        states.append(local.state_dict())
    model.load_state_dict(
        {name: torch.stack([state[name] for state in states]).mean(dim=0) for name in states[0]}
    )
