"""What the paper leaves open in training, chosen by how well random scheduling learns with it.

``freshband reproduce choice``. Local steps, batch and step size (erratum E20) are those with which
random scheduling, and nothing else, is most accurate over the last 25 of 250 rounds; the run is one
that no figure shows. A step size with which a model did not learn at all is not trusted on either
air. What was tried is kept in ``choice.json``, trial by trial, so that a command that was
interrupted goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, product
from pathlib import Path
from typing import Any, Final

import numpy as np

from freshband.experiments import training
from freshband.experiments.base import Machine
from freshband.files import check_writable, replacing

__all__ = ["FILE", "GRID", "best_of", "read_trials", "try_all"]

FILE: Final = "choice.json"
_RUN: Final = 1000  # no figure shows it
Block = tuple[Sequence[int], Sequence[int], Sequence[float]]
# Local steps, batches and step sizes, all with all, by data set and air. Fewer updates arrive on
# the extreme air, which has four clients, so there may be more steps. ResNet-18 learned so slowly
# that the search went on upwards, until a trial took a minute of a GPU.
GRID: Final[Mapping[tuple[str, str], Sequence[Block]]] = {
    ("cifar10", "piecewise"): [((5, 10), (32, 64), (0.02, 0.05, 0.1))],
    ("cifar10", "extreme"): [((10, 20), (32, 64), (0.02, 0.05, 0.1))],
    ("cifar100", "piecewise"): [
        ((5, 10), (64,), (0.02, 0.05, 0.1)),
        ((10,), (64,), (0.2, 0.4)),
        ((20,), (32,), (0.2, 0.4, 0.8)),
        ((20,), (64,), (0.4,)),
    ],
    ("cifar100", "extreme"): [
        ((10, 20), (64,), (0.02, 0.05, 0.1)),
        ((20,), (64,), (0.2, 0.4, 0.8)),
        ((20,), (32,), (0.2, 0.4)),
        ((40,), (64,), (0.4,)),
    ],
}
_UNLEARNED: Final = {"cifar10": 0.2, "cifar100": 0.02}  # twice what guessing gets

Trial = dict[str, Any]


def _trials() -> Iterator[Trial]:
    for (dataset, air), blocks in GRID.items():
        for local_steps, batch_size, client_lr in chain(*(product(*block) for block in blocks)):
            yield {
                "dataset": dataset,
                "air": air,
                "local_steps": local_steps,
                "batch_size": batch_size,
                "client_lr": client_lr,
            }


def read_trials(folder: Path) -> list[Trial]:
    """Return what was tried, each trial with its ``accuracy``, ``device`` and ``precision``."""
    path = folder / FILE
    if not path.exists():
        return []
    found: list[Trial] = json.loads(path.read_text(encoding="utf-8"))
    return found


def best_of(trials: Sequence[Trial], dataset: str, air: str) -> dict[str, Any]:
    """Return the most accurate settings tried for a data set on an air.

    Examples
    --------
    >>> good = {"dataset": "cifar10", "air": "extreme", "local_steps": 5, "batch_size": 8}
    >>> tried = [{**good, "client_lr": lr, "accuracy": lr} for lr in (0.3, 0.4)]
    >>> best_of(tried, "cifar10", "extreme")["client_lr"]
    0.4
    >>> failed = {**good, "air": "piecewise", "client_lr": 0.4, "accuracy": 0.1}
    >>> best_of([*tried, failed], "cifar10", "extreme")["client_lr"]
    0.3
    >>> best_of([failed], "cifar10", "piecewise")["client_lr"]  # nothing better so far
    0.4
    """
    mine = [trial for trial in trials if trial["dataset"] == dataset]
    failed = {
        trial["client_lr"] for trial in mine if trial["accuracy"] < _UNLEARNED.get(dataset, 0.0)
    }
    here = [trial for trial in mine if trial["air"] == air]
    fit = [trial for trial in here if trial["client_lr"] not in failed] or here
    best = max(fit, key=lambda trial: float(trial["accuracy"]))
    return {name: best[name] for name in ("local_steps", "batch_size", "client_lr")}


def try_all(folder: Path, machine: Machine) -> Iterator[Trial]:
    """Try what was not tried yet; yield each trial once it is in the file."""
    from freshband.federated.comparison import compare  # here: reading trials needs no PyTorch

    path = check_writable(folder / FILE)
    done = read_trials(folder)
    for trial in _trials():
        if any(trial.items() <= known.items() for known in done):
            continue
        options = {name: trial[name] for name in ("local_steps", "batch_size", "client_lr")}
        settings = training.settings_of(trial["dataset"], trial["air"], _RUN, options)
        result = compare(training.placed(settings, machine), ["random"], progress=machine.progress)
        curve = result.accuracy.values[0, 0, -25:]
        kept = {
            **trial,
            "accuracy": round(float(np.nanmean(curve)), 4),
            "device": result.attrs["device"],
            "precision": machine.precision,
        }
        done.append(kept)
        with replacing(path) as scratch:
            scratch.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
        yield kept
