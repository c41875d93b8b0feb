"""Own modules, losses and layers against the built-in path, for the same network, in one run.

    python -m benchmarks.own

Twenty clients train the eight-layer CNN as in `benchmarks.training`. Contestants take turns, so
that other load on the machine meets all of them.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from benchmarks.measure import interleave
from benchmarks.training import CLIENTS, SAMPLES, _settings
from freshband.federated import Federation, build_model, load_dataset

__all__ = ["table"]


class _Mine(nn.Module):
    """A module of a user's own around the built-in network."""

    def __init__(self, network: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.network = network
        self.drop = nn.Dropout(dropout)

    def forward(self, images: torch.Tensor) -> Any:
        return self.drop(self.network(images))


class _Round:
    """Plays a round of a federation."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation

    def __call__(self, turn: int) -> None:
        self.federation.step()


def _loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, targets)


def table(turns: int, model: str = "cnn8", workers: int = 2) -> dict[str, float]:
    """Return the seconds of a round by contestant: the median over turns."""
    dataset = load_dataset("synthetic", n_train=CLIENTS * SAMPLES, n_test=10)
    network = build_model(model, dataset.shape, dataset.n_classes)
    kinds: dict[str, dict[str, Any]] = {
        "built-in": {},
        "own module": {"model": _Mine(network)},
        "own module and loss": {"model": _Mine(network), "loss": _loss},
        "own module with dropout": {"model": _Mine(network, 0.1)},
        "own optimiser, SGD": {"model": _Mine(network), "optimiser": torch.optim.SGD},
    }
    settings = _settings(CLIENTS, model=model, val_fraction=0, workers=workers, path="threads")
    with ExitStack() as stack:
        runs = {
            name: stack.enter_context(Federation(settings, dataset=dataset, **more))
            for name, more in kinds.items()
        }
        return interleave({name: _Round(run) for name, run in runs.items()}, turns)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--model", default="cnn8")
    given = parser.parse_args()
    seconds = table(given.turns, given.model, given.workers)
    print("| one round | seconds | of the built-in path |\n| --- | ---: | ---: |")
    for name, value in seconds.items():
        print(f"| {name} | {value:.3f} | {value / seconds['built-in']:.2f} |")


if __name__ == "__main__":
    main()
