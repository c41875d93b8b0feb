"""Models with strided 1×1 convolutions of few channels, trained in a process of their own.

oneDNN writes past a buffer in the backward pass of such layers, which can end the process, so tests
run this file as a program: `python -m tests.federated.narrow NAME ...`.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from freshband.federated import Training, build_model, load_dataset
from freshband.federated.clients import choose_clients
from freshband.federated.clients._base import ParameterLayout, TrainingJob

LR = 0.1
ROUNDS = 4  # memory is not damaged visibly every time


class Functional(nn.Module):
    """Calls the convolution itself, on images it lays channels-last by a way of its own."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mixing = nn.Linear(3, channels)
        self.kernel = nn.Parameter(torch.randn(4, channels, 1, 1))
        self.last = nn.Linear(4, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        mixed = self.mixing(images.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        found = nn.functional.conv2d(mixed, self.kernel, stride=(2, 2))
        return self.last(torch.tanh(found).mean(dim=(2, 3)))


def layers(*some: nn.Module, outputs: int) -> nn.Module:
    """Return layers, then the mean over pixels and a dense layer."""
    return nn.Sequential(
        *some, nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(outputs, 3)
    )


def transposed(channels: int) -> nn.Module:
    """A transposed convolution, whose gradients are those of an ordinary one."""
    up = nn.ConvTranspose2d(8, channels, 1, stride=2, output_padding=1)
    return layers(nn.Conv2d(3, 8, 3, padding=1), up, outputs=channels)


OWN: dict[str, Callable[[], nn.Module]] = {
    "pixels": lambda: layers(nn.Conv2d(3, 4, 1, stride=2), outputs=4),
    "few": lambda: layers(nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 8, 1, stride=2), outputs=8),
    "one-way": lambda: layers(
        nn.Conv2d(3, 5, 3, padding=1), nn.Conv2d(5, 4, 1, stride=(1, 2)), outputs=4
    ),
    "twelve": lambda: layers(
        nn.Conv2d(3, 12, 3, padding=1), nn.Conv2d(12, 4, 1, stride=2), outputs=4
    ),
    "functional": lambda: Functional(4),
    "functional-twelve": lambda: Functional(12),
    "transposed": lambda: transposed(4),
}
ZOO: dict[str, dict[str, object]] = {
    "mlp": {"hidden": [6]},
    "small-cnn": {"widths": (3, 4)},
    "cnn8": {"widths": (4, 4, 6), "hidden": 8},
    "resnet18": {"width": 4},
}


def build(name: str, shape: tuple[int, int, int]) -> nn.Module:
    """Return a model with every weight at work; residual branches begin with nothing."""
    torch.manual_seed(0)
    module = build_model(name, shape, 3, **ZOO[name]) if name in ZOO else OWN[name]()
    with torch.no_grad():
        for weights in module.parameters():
            weights += 0.05 * torch.randn(weights.shape)
    return module


def worst_error(name: str, side: int, path: str) -> float:
    """Return how far float32 updates are from float64's, as a part of these."""
    shape = (3, side, side)
    data = load_dataset("synthetic", seed=1, shape=shape, n_classes=3, n_train=60, n_test=10)
    module = build(name, shape)
    rng = np.random.default_rng(0)
    batches = [rng.integers(0, 60, (2, 4)) for _ in range(3)]
    row = ParameterLayout(module).read(module)
    updates = {}
    for precision in ("float64", "float32"):
        start = row.to(torch.float64 if precision == "float64" else torch.float32)
        jobs = [TrainingJob(start, some, torch.empty_like(start)) for some in batches]
        clients = choose_clients(
            copy.deepcopy(module), data, Training(path=path, precision=precision, workers=2)
        )
        for _ in range(1 if precision == "float64" else ROUNDS):
            clients.train(jobs, LR)
            clients.train(jobs[:1], LR)  # a stack of one is convolved like no stack at all
        clients.close()
        updates[precision] = torch.stack([job.out.double() for job in jobs])
    exact, found = updates["float64"], updates["float32"]
    return float((found - exact).norm() / exact.norm())


if __name__ == "__main__":
    side, *names = sys.argv[1:]
    for path in ("threads", "stacked"):
        for name in names:
            sys.stdout.write(f"{path} {name} {worst_error(name, int(side), path):.2e}\n")
            sys.stdout.flush()
