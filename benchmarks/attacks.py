"""Attacks on training, and the server rules that withstand them: ``python -m benchmarks.attacks``.

Ten clients learn the digits over changing channels; some of them are malicious. The table, as
Markdown, has the final accuracy in percent, the mean over runs with other seeds. With ``--honest``
it counts the updates that the guard refuses where nobody is malicious: in eleven settings on the
digits, or in the runs of the table on CIFAR-10. ``--cifar10 DIR`` takes a
small convolutional network and CIFAR-10, whose files are in DIR, in place of the digits; ``--rules
renorm`` takes only the columns whose names contain a word.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from freshband.federated import Federation, Training

ROUNDS, CLIENTS = 60, 10
Attack = Callable[[torch.Tensor], torch.Tensor]

ATTACKS: dict[str, tuple[int, Attack]] = {  # malicious clients, and what they send
    "nobody": (0, torch.clone),
    "one sends 10⁴ everywhere, once": (1, lambda update: torch.full_like(update, 1e4)),
    "two always send 10⁴ everywhere": (2, lambda update: torch.full_like(update, 1e4)),
    "two always send −10 times theirs": (2, lambda update: -10 * update),
    "two always send −4 times theirs": (2, lambda update: -4 * update),
    "two always send −1 times theirs": (2, lambda update: -update),
    "four always send −1 times theirs": (4, lambda update: -update),
    "two always send noise, 4 times as long": (2, lambda update: _noise(update)),
}
RULES: dict[str, dict[str, Any]] = {
    "`renorm`, no guard": {"length_limit": 0},
    "`renorm`": {},
    "`fedbuff`": {"algorithm": "fedbuff"},
    "`bounded`": {"algorithm": "bounded"},
    "`trimmed`": {"algorithm": "trimmed"},
    "`median`": {"algorithm": "median"},
}

HONEST: tuple[dict[str, Any], ...] = (
    {},
    {"algorithm": "fedavg"},
    {"algorithm": "fedbuff"},
    {"algorithm": "fedasync"},
    {"algorithm": "renorm+eager"},
    {"partition_options": {"alpha": 0.1}},
    {"partition": "shards"},
    {"channels": "fig3-extreme", "policy": "m-exp3"},
    {"model": "mlp"},
    {"clients": 4},
    {"clients": 20},
)


def count_refused(settings: Iterable[dict[str, Any]]) -> None:
    """Print how many honest updates arrive, and how many the guard refuses."""
    for chosen in settings:
        with Federation(Training(**{"eval_every": 100, "device": "cpu", **chosen})) as run:
            records = list(run)
        refused = sum(int(record.refused.sum()) for record in records)
        arrived = refused + sum(int(record.delivered.sum()) for record in records)
        rounds = [record.round for record in records if record.refused.any()]
        print(f"{refused} of {arrived} refused, in rounds {rounds}: {chosen}", flush=True)


def _noise(update: torch.Tensor) -> torch.Tensor:
    drawn = torch.randn(update.shape, generator=torch.Generator().manual_seed(len(update)))
    longer: torch.Tensor = 4 * update.norm() / drawn.norm()
    return drawn.to(update) * longer


def final_accuracy(attack: str, rule: str, seed: int, rounds: int = ROUNDS, **task: Any) -> float:
    """Return the final accuracy of one run; ``task`` are settings of data set and model."""
    liars, change = ATTACKS[attack]
    spent = False

    def alter(t: int, client: int, update: torch.Tensor) -> torch.Tensor | None:
        nonlocal spent
        if client >= liars or spent:
            return None
        spent = attack.endswith("once")
        return change(update)

    settings = Training(
        clients=CLIENTS,
        rounds=rounds,
        eval_every=rounds,
        device="cpu",
        seed=seed,
        **task,
        **RULES[rule],
    )
    with Federation(settings, alter_update=alter) as run:
        return list(run)[-1].accuracy


def on_cifar10(folder: str) -> dict[str, Any]:
    """Return the settings for CIFAR-10."""
    return {"dataset": "cifar10", "dataset_options": {"data_dir": folder}, "model": "small-cnn"}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--honest", action="store_true")
    parser.add_argument("--cifar10", metavar="DIR")
    parser.add_argument("--rules", default="", metavar="WORD")
    chosen = parser.parse_args()
    task = {} if chosen.cifar10 is None else on_cifar10(chosen.cifar10)
    if chosen.honest:
        usual = {"clients": CLIENTS, "rounds": chosen.rounds, **task}
        seeds = [{**usual, "seed": seed} for seed in range(chosen.seeds)]
        count_refused(seeds if task else [{"rounds": 100, **each} for each in HONEST])
        return
    rules = [rule for rule in RULES if chosen.rules in rule]
    print("| malicious clients of ten | " + " | ".join(rules) + " |")
    print("| --- |" + " ---: |" * len(rules))
    for attack in ATTACKS:
        row = []
        for rule in rules:
            found = [
                final_accuracy(attack, rule, seed, chosen.rounds, **task)
                for seed in range(chosen.seeds)
            ]
            row.append(f"{100 * np.mean(found):.1f}")
        print(f"| {attack} | " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
