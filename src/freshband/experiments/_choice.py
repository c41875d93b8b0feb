"""Settings of training that the paper leaves open (E20), chosen under random scheduling.

``freshband reproduce choice``. Local steps E, batch and step size η follow from this rule, which
was fixed before any trial was made:

- A trial trains on nine tenths of the training set and is evaluated on the rest, never on the test
  set. Its seed is 1. All figures have seed 0, so no figure shares its air (channel environment),
  partition, initial weights or batches.
- The score of a setting is the mean over three runs of the accuracy over the last 25 of 250 rounds.
  A run whose last evaluation is not above twice the accuracy of guessing diverged or learned
  nothing, and counts as guessing, 1 / classes. The setting with the best score is chosen.
- A search begins with a small grid. Then it tries what is one step away from the best setting so
  far: η doubled or halved; the batch doubled or halved at the same number of samples, with E halved
  or doubled; E halved or doubled. It ends when all of these were tried, so that the chosen value
  of a setting is never the last one that was tried, except at a limit. This is a local best.
- The limits: E and batch are at least 1, and a client goes through at most half of its samples in a
  round, rounded down to a power of two: E × batch <= 1,024 with 20 clients and 4,096 with four.
  Local work is what a round costs rather than something to tune: more of it was more accurate
  wherever it was tried, and the time that the figures take grows with it.
- ResNet-18 on CIFAR-100 costs many times as much as the network for CIFAR-10. There the search
  looks at the first run alone. The two best settings are then trained in the other two runs as
  well, and only settings with three runs can be chosen.

One limit was added after trials that it excludes: with four clients on CIFAR-100 a batch is at
least 16. With smaller ones a GPU takes most of its time to load weights: halving the batch doubled
the time of a trial.

Every trial is kept in ``choice.json``, so that an interrupted command can be resumed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from freshband._files import check_writable, write_whole
from freshband.experiments.base import Machine, _read_rows
from freshband.experiments.training import VALIDATION, Place, _on_machine, settings_of

if TYPE_CHECKING:
    import xarray as xr

Trial = dict[str, Any]

CHOICE: Final = "choice.json"
EARLIER: Final = "choice-earlier.json"  # trials of an earlier rule, which say what it chose
_RUNS: Final = 3
_FINALISTS: Final = 2
_CLASSES: Final = {"digits": 10, "cifar10": 10, "cifar100": 100}


class Setting(NamedTuple):
    """What the paper leaves open."""

    local_steps: int  # E
    batch_size: int
    client_lr: float  # η


class Search(NamedTuple):
    """Where the search for a place begins, and its limits."""

    samples: int  # that a client trains on in a round, at most: E times the batch
    batches: Sequence[int]
    rates: Sequence[float]  # η
    runs: int = _RUNS  # that it looks at
    least: int = 1  # images in a batch

    def grid(self) -> list[Setting]:
        """Return where it begins: all combinations, with as many local steps as the limit lets."""
        return [Setting(self.samples // n, n, lr) for n, lr in product(self.batches, self.rates)]

    def around(self, setting: Setting) -> list[Setting]:
        """Return the settings one step away, within the limits."""
        steps, batch, lr = setting
        near = [Setting(steps, batch, 2 * lr), Setting(steps, batch, lr / 2)]
        near += [Setting(steps // 2, 2 * batch, lr), Setting(2 * steps, batch // 2, lr)]
        near += [Setting(steps // 2, batch, lr), Setting(2 * steps, batch, lr)]
        return [each for each in near if self.allows(each)]

    def allows(self, setting: Setting) -> bool:
        """Whether a setting is within the limits."""
        steps, batch, _ = setting
        return batch >= self.least and 0 < steps * batch <= self.samples


SEARCHES: Final[Mapping[Place, Search]] = {
    ("cifar10", "piecewise"): Search(1024, (32, 64), (0.05, 0.1, 0.2)),
    ("cifar10", "extreme"): Search(4096, (32, 64), (0.05, 0.1, 0.2)),
    ("cifar100", "piecewise"): Search(1024, (32,), (0.2, 0.4, 0.8), runs=1),
    ("cifar100", "extreme"): Search(4096, (32,), (0.2, 0.4, 0.8), runs=1, least=16),
}


def read_trials(folder: Path, file: str = CHOICE) -> list[Trial]:
    """Return all trials, each with its ``accuracies``, ``device`` and ``precision``."""
    path = folder / file
    return _read_rows(path) if path.exists() else []


def best_of(trials: Sequence[Trial], place: Place) -> dict[str, Any]:
    """Return the setting with the best score for a data set on an air, empty before the end."""
    known = _known(trials, place, SEARCHES.get(place))
    scored = any(len(runs) == _RUNS for runs in known.values())
    return _best(known)._asdict() if scored and place not in unfinished(trials) else {}


def is_chosen(trials: Sequence[Trial], trial: Trial) -> bool:
    """Whether a trial has the setting that was chosen among the trials."""
    best = best_of(trials, (trial["dataset"], trial["air"]))
    return bool(trial.get("chosen")) or (bool(best) and best.items() <= trial.items())


def unfinished(trials: Sequence[Trial]) -> list[Place]:
    """Return the places of the study whose search has begun and has not ended."""
    known = {place: _known(trials, place, search) for place, search in SEARCHES.items()}
    return [place for place, mine in known.items() if mine and _next(mine, SEARCHES[place])]


def try_all(
    folder: Path,
    machine: Machine,
    searches: Mapping[Place, Search] = SEARCHES,
    changes: Mapping[str, Any] | None = None,
) -> Iterator[Trial]:
    """Run the trials that are missing, and yield each once it is in the file.

    ``changes`` are settings of training that replace the study's, such as the number of rounds.
    """
    path = check_writable(folder / CHOICE)
    done = read_trials(folder)
    for place, search in searches.items():
        while job := _next(_known(done, place, search), search):
            setting, runs = job
            trial = {"dataset": place[0], "air": place[1], **setting._asdict()}
            before = next((each for each in done if trial.items() <= each.items()), None)
            made = _try(place, setting, runs, machine, changes or {})
            if before is not None:
                done.remove(before)
                made["accuracies"] = before["accuracies"] + made["accuracies"]
                made["seconds"] = round(before["seconds"] + made["seconds"], 1)
            done.append({**trial, **made})
            write_whole(path, (json.dumps(done, indent=1) + "\n").encode())
            yield done[-1]


def _known(
    trials: Sequence[Trial], place: Place, search: Search | None
) -> dict[Setting, list[float]]:
    """Return the accuracies at a place by setting, of those within the limits of a search."""
    known = {
        Setting(*(trial[name] for name in Setting._fields)): trial["accuracies"]
        for trial in trials
        if (trial["dataset"], trial["air"]) == place
    }
    return {at: runs for at, runs in known.items() if search is None or search.allows(at)}


def _best(known: Mapping[Setting, Sequence[float]]) -> Setting:
    """Return the setting with the best mean among those with the most runs."""
    return max(known, key=lambda setting: (len(known[setting]), np.mean(known[setting])))


def _next(known: Mapping[Setting, list[float]], search: Search) -> tuple[Setting, range] | None:
    """Return the setting to try next and its missing runs, or None at the end of a search."""
    for setting, runs in _wanted(known, search):
        there = len(known.get(setting, ()))
        if there < runs:
            return setting, range(there, runs)
    return None


def _wanted(
    known: Mapping[Setting, Sequence[float]], search: Search
) -> Iterator[tuple[Setting, int]]:
    """Yield settings with the number of runs that each has to have, in the order of a search."""
    for setting in search.grid():
        yield setting, search.runs
    ranked = sorted(known, key=lambda setting: -np.mean(known[setting][: search.runs]))
    for setting in search.around(ranked[0]):
        yield setting, search.runs
    for setting in ranked[:_FINALISTS]:
        yield setting, _RUNS
    for setting in search.around(_best(known)):
        yield setting, search.runs


def _try(
    place: Place, setting: Setting, runs: range, machine: Machine, changes: Mapping[str, Any]
) -> Trial:
    """Train a setting in some runs, together where the device allows it."""
    from freshband.federated.comparison import compare  # here: reading trials needs no PyTorch

    mine = {**VALIDATION, "run": runs.start, **setting._asdict()}
    settings = _on_machine(settings_of(place, **{**changes, **mine}), machine)
    result = compare(settings, ["random"], runs=len(runs), progress=machine.progress)
    return {
        "accuracies": _final_accuracies(result, 1 / _CLASSES[place[0]]),
        "seconds": round(result.attrs["seconds"], 1),
        "device": result.attrs["device"],
        "precision": machine.precision,
    }


def _final_accuracies(result: xr.Dataset, guessing: float) -> list[float]:
    """Return the accuracy of each run over the last 25 rounds, or that of guessing (the rule)."""
    curves = result.accuracy.values[0]
    learned = curves[:, -1] > 2 * guessing
    means = np.where(learned, np.nanmean(curves[:, -25:], axis=1), guessing)
    return [round(float(mean), 4) for mean in means]
