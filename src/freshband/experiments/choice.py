"""What the paper leaves open in training, chosen by how well random scheduling learns with it.

``freshband reproduce choice``. Local steps, batch and step size (erratum E20) are those with which
random scheduling, and nothing else, is most accurate over the last 25 of 250 rounds; the run is one
that no figure shows. What was tried is kept in ``choice.json``, trial by trial, so that a command
that was interrupted goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np

from freshband.experiments import fig3
from freshband.experiments.base import Machine
from freshband.federated.comparison import compare
from freshband.sealed import check_writable, replacing

__all__ = ["FILE", "GRID", "best_of", "read_trials", "try_all"]

FILE: Final = "choice.json"
_RUN: Final = 1000  # no figure shows it
_STEPS: Final = (0.02, 0.05, 0.1)  # step sizes
# Local steps and batches, by data set and air. Fewer updates arrive on the extreme air, which has
# four clients, so they may be larger there.
GRID: Final[Mapping[tuple[str, str], tuple[Sequence[int], Sequence[int]]]] = {
    ("cifar10", "piecewise"): ((5, 10), (32, 64)),
    ("cifar10", "extreme"): ((10, 20), (32, 64)),
    ("cifar100", "piecewise"): ((5, 10), (64,)),
    ("cifar100", "extreme"): ((10, 20), (64,)),
}

Trial = dict[str, Any]


def _trials() -> Iterator[Trial]:
    for (dataset, air), (steps, batches) in GRID.items():
        for local_steps, batch_size, client_lr in product(steps, batches, _STEPS):
            yield {
                "dataset": dataset,
                "air": air,
                "local_steps": local_steps,
                "batch_size": batch_size,
                "client_lr": client_lr,
            }


def read_trials(folder: Path) -> list[Trial]:
    """Return what was tried, each trial with its ``accuracy``."""
    path = folder / FILE
    if not path.exists():
        return []
    found: list[Trial] = json.loads(path.read_text(encoding="utf-8"))
    return found


def best_of(trials: Sequence[Trial], dataset: str, air: str) -> dict[str, Any]:
    """Return the most accurate settings tried for a data set on an air."""
    mine = [trial for trial in trials if (trial["dataset"], trial["air"]) == (dataset, air)]
    best = max(mine, key=lambda trial: float(trial["accuracy"]))
    return {name: best[name] for name in ("local_steps", "batch_size", "client_lr")}


def try_all(folder: Path, machine: Machine) -> Iterator[Trial]:
    """Try what was not tried yet; yield each trial once it is in the file."""
    path = check_writable(folder / FILE)
    done = read_trials(folder)
    for trial in _trials():
        if any(trial.items() <= known.items() for known in done):
            continue
        options = {name: trial[name] for name in ("local_steps", "batch_size", "client_lr")}
        settings = fig3.settings_of(trial["dataset"], trial["air"], _RUN, options)
        result = compare(fig3.placed(settings, machine), ["random"], progress=machine.progress)
        curve = result.accuracy.values[0, 0, -25:]
        kept = {**trial, "accuracy": round(float(np.nanmean(curve)), 4)}
        done.append(kept)
        with replacing(path) as scratch:
            scratch.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
        yield kept
