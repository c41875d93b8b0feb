"""BatchNorm where each client holds one class: ``python -m benchmarks.batchnorm``.

Ten clients train a network of two dense layers on digits, with a normalisation between them. If a
batch holds one class, BatchNorm subtracts that class's own mean and with it what tells it from
others; this is no matter of how running statistics are combined. The plain loop is FedAvg without
freshband: every client trains in every round, and everything in the model is averaged.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
from pathlib import Path
from typing import Any, Final, Literal

import torch
from torch import nn

from benchmarks.page import _renew, _table
from freshband.federated import Training, load_dataset, split_samples, train

__all__ = ["plain_loop", "scheduled", "table"]

_Kind = Literal["averaged", "local", "frozen"]

CLIENTS, HIDDEN, LOOKS = 10, 64, 10
PARTITIONS: Final[dict[str, dict[str, Any]]] = {
    "mixed": {"partition": "iid"},
    "one class each": {"partition": "shards", "partition_options": {"shards_per_client": 1}},
}
PERFECT: Final = {"channels": "stationary", "channel_options": {"means": [1.0] * CLIENTS}}
NORMS: Final[dict[str, tuple[type[nn.Module], _Kind]]] = {
    "BatchNorm, statistics averaged": (nn.BatchNorm1d, "averaged"),
    "BatchNorm, local (FedBN)": (nn.BatchNorm1d, "local"),
    "BatchNorm, frozen": (nn.BatchNorm1d, "frozen"),
    "LayerNorm": (nn.LayerNorm, "averaged"),
    "none": (nn.Identity, "averaged"),
}


def _network(norm: type[nn.Module], seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, HIDDEN), norm(HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10)
    )


def scheduled(
    norm: type[nn.Module], kind: _Kind, split: dict[str, Any], more: dict[str, Any],
    rounds: int, seed: int,
) -> tuple[float, float]:  # fmt: skip
    """Return the accuracy of the server's model and of clients' own ones, over the last rounds."""
    settings = Training(clients=CLIENTS, rounds=rounds, seed=seed, statistics=kind, **split, **more)
    result = train(settings, model=_network(norm, seed)).result
    own = result.client_accuracy.values[-LOOKS:]
    return float(result.accuracy.values[-LOOKS:].mean()), float(own.mean())


def plain_loop(norm: type[nn.Module], split: dict[str, Any], rounds: int, seed: int) -> float:
    """Return the accuracy of FedAvg with everybody, over the last rounds."""
    settings = Training(clients=CLIENTS, seed=seed, **split)
    data = load_dataset("digits", seed=seed)
    held = split_samples(
        data.train_labels, CLIENTS, scheme=settings.partition, seed=seed,
        **settings.partition_options,
    ).train  # fmt: skip
    images, labels = data.normalise(data.train_images), data.train_labels
    model, rng = _network(norm, seed), torch.Generator().manual_seed(seed)
    found = []
    for round in range(rounds):
        states = []
        for mine in map(torch.as_tensor, held):
            local = copy.deepcopy(model).train()
            optimiser = torch.optim.SGD(local.parameters(), lr=settings.client_lr)
            for _ in range(settings.local_steps):
                some = mine[torch.randint(len(mine), (settings.batch_size,), generator=rng)]
                optimiser.zero_grad()
                nn.functional.cross_entropy(local(images[some]), labels[some]).backward()
                optimiser.step()
            states.append(local.state_dict())
        mean = {
            name: torch.stack([state[name].double() for state in states]).mean(0)
            for name in states[0]
        }
        model.load_state_dict(mean)
        if round >= rounds - LOOKS:
            with torch.no_grad():
                guess = model.eval()(data.normalise(data.test_images)).argmax(1)
            found.append(float((guess == data.test_labels).float().mean()))
    return statistics.mean(found)


def table(rounds: int, seeds: int) -> str:
    """Return a table of accuracies, means over seeds."""
    rows = []
    for name, (norm, kind) in NORMS.items():
        for label, split in PARTITIONS.items():
            runs = range(seeds)
            perfect = [scheduled(norm, kind, split, PERFECT, rounds, seed) for seed in runs]
            lossy = [scheduled(norm, kind, split, {}, rounds, seed) for seed in runs]
            alone = kind == "averaged"
            plain = [plain_loop(norm, split, rounds, seed) for seed in runs if alone]
            columns = [plain, *zip(*perfect, strict=True), *zip(*lossy, strict=True)]
            shown = [f"{statistics.mean(column):.2f}" if column else "–" for column in columns]
            rows.append([name, label, *shown])
            print(rows[-1], file=sys.stderr)
    head = ["normalisation", "data", "plain loop", "perfect channels", "clients' own",
            "default channels", "clients' own"]  # fmt: skip
    return _table(head, rows)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="update the docs")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    found = table(chosen.rounds, chosen.seeds)
    print(found)
    if chosen.write:
        _renew(Path("docs/federated-data.md"), found, "batchnorm")


if __name__ == "__main__":
    main()
