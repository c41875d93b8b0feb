"""Settings of training that the paper leaves open (E20), chosen under random scheduling.

``freshband reproduce choice``. Local steps, batch and step size are those with which random
scheduling is most accurate over the last 25 of 250 rounds, in a run that no figure shows. A step
size with which a model did not learn at all is not used on either air (channel environment). Every
trial is kept in ``choice.json``, so that an interrupted command can be resumed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, product
from pathlib import Path
from typing import Any, Final

import numpy as np

from freshband._files import check_writable, write_whole
from freshband.experiments.base import Machine, _read_rows
from freshband.experiments.training import Place, _on_machine, settings_of

Trial = dict[str, Any]
Grid = Mapping[Place, Sequence[tuple[Sequence[int], Sequence[int], Sequence[float]]]]

_FILE: Final = "choice.json"
_RUN: Final = 1000  # no figure shows it
_OPEN: Final = ("local_steps", "batch_size", "client_lr")
_UNLEARNED: Final = {"cifar10": 0.2, "cifar100": 0.02}  # twice the accuracy of guessing
# All combinations of local steps, batches and step sizes. On the extreme air, which has four
# clients, fewer updates arrive, so more steps are tried. ResNet-18 learned so slowly that larger
# values were added until a trial took a minute of a GPU.
GRID: Final[Grid] = {
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


def read_trials(folder: Path) -> list[Trial]:
    """Return all trials, each with its ``accuracy``, ``device`` and ``precision``."""
    path = folder / _FILE
    return _read_rows(path) if path.exists() else []


def best_of(trials: Sequence[Trial], dataset: str, air: str) -> dict[str, Any]:
    """Return the most accurate settings tried for a data set on an air."""
    mine = [trial for trial in trials if trial["dataset"] == dataset]
    least = _UNLEARNED.get(dataset, 0.0)
    failed = {trial["client_lr"] for trial in mine if trial["accuracy"] < least}
    here = [trial for trial in mine if trial["air"] == air]
    fit = [trial for trial in here if trial["client_lr"] not in failed] or here
    best = max(fit, key=lambda trial: float(trial["accuracy"]))
    return {name: best[name] for name in _OPEN}


def try_all(
    folder: Path, machine: Machine, grid: Grid = GRID, changes: Mapping[str, Any] | None = None
) -> Iterator[Trial]:
    """Run the trials that are missing, and yield each once it is in the file.

    ``changes`` are settings of training that replace the study's, such as the number of rounds.
    """
    from freshband.federated.comparison import compare  # here: reading trials needs no PyTorch

    path = check_writable(folder / _FILE)
    done = read_trials(folder)
    for place, blocks in grid.items():
        for values in chain(*(product(*block) for block in blocks)):
            options = dict(zip(_OPEN, values, strict=True))
            trial = {"dataset": place[0], "air": place[1], **options}
            if any(trial.items() <= known.items() for known in done):
                continue
            settings = settings_of(place, **{**(changes or {}), "run": _RUN, **options})
            settings = _on_machine(settings, machine)
            result = compare(settings, ["random"], progress=machine.progress)
            accuracy = float(np.nanmean(result.accuracy.values[0, 0, -25:]))
            made = {"device": result.attrs["device"], "precision": machine.precision}
            done.append({**trial, "accuracy": round(accuracy, 4), **made})
            write_whole(path, (json.dumps(done, indent=1) + "\n").encode())
            yield done[-1]
