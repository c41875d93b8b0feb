"""The parts of the page on what ``freshband reproduce`` writes beside results."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, Final

from freshband.errors import FileError
from freshband.experiments._choice import CHOICE, EARLIER, is_chosen
from freshband.experiments.base import Experiment, _find_verdicts, _read_rows
from freshband.reporting._numbers import Table, counted, number
from freshband.reporting._page.parts import Part, Picture
from freshband.reporting._page.pictures import load_picture
from freshband.reporting._reproduction import written_measure, written_p

_HEAD: Final = ("statement", "verdict", "measured", "p", "paper", "why")
_TRIED: Final = {
    "dataset": "data set",
    "air": "air",
    "local_steps": "local steps",
    "batch_size": "batch",
    "client_lr": "step size",
    "accuracy": "accuracy of random",
    "runs": "runs",
    "device": "device",
    "precision": "precision",
    "taken": "",
}


def is_verdict_name(name: str) -> bool:
    """Whether a file has a name that ``freshband reproduce`` gives.

    Examples
    --------
    >>> is_verdict_name("fig2a-quick.json"), is_verdict_name("package.json")
    (True, False)
    """
    return name in (CHOICE, EARLIER) or _find_verdicts(name) is not None


def show_json(path: Path, title: str) -> Part:
    """Return the part of the page on a file of verdicts or of trials, or raise `FileError`."""
    rows = _read_rows(path)
    shower = _show_verdicts if "verdict" in rows[0] else _show_trials
    return shower(rows, path, title)


def _show_verdicts(claims: list[dict[str, Any]], path: Path, title: str) -> Part:
    experiment = _find_verdicts(path.name)
    told = [claim["verdict"] for claim in claims]
    counts = ", ".join(f"{each}: {told.count(each)}" for each in dict.fromkeys(told))
    if experiment is None:
        return Part(kind="Experiment", title=title, about=counts, summary=_claims_table(claims))
    pictures, notes = _figures(experiment, path.parent)
    return Part(
        kind="Experiment",
        title=title,
        about=f"{experiment.title}; scale {experiment.scale}; {counts}",
        summary=_claims_table(claims),
        pictures=pictures,
        notes=notes,
        repeat=f"freshband {experiment.command} --out {_folder(path)}",
    )


def _figures(experiment: Experiment, folder: Path) -> tuple[list[Picture], list[str]]:
    """Return the figures of an experiment that exist, and notes on those that cannot be shown."""
    pictures, notes = [], []
    for shown in experiment.figures:
        path = folder / experiment.file(shown, ".png")
        if path.exists():
            try:
                pictures.append(load_picture(path, experiment.title))
            except FileError as error:
                notes.append(str(error))
    return pictures, notes


def _claims_table(claims: list[dict[str, Any]]) -> Table:
    rows = [
        [
            claim["what"],
            claim["verdict"],
            written_measure(claim),
            written_p(claim["p"]),
            claim["paper"],
            claim["why"],
        ]
        for claim in claims
    ]
    caption = "Statements and verdicts: means, their 95 % intervals, and p values (Holm)"
    return Table(caption, _HEAD, rows, words=True)


def _show_trials(trials: list[dict[str, Any]], path: Path, title: str) -> Part:
    rows = []
    for trial in trials:
        taken = "taken" if is_chosen(trials, trial) else ""
        runs = trial["accuracies"]
        accuracy = number(sum(runs) / len(runs), percent=True)
        cells = {**trial, "accuracy": accuracy, "runs": len(runs), "taken": taken}
        rows.append([str(cells[name]) for name in _TRIED])
    return Part(
        kind="Choice",
        title=title,
        about="Settings that the paper leaves open, chosen by how well random scheduling "
        f"learns: {counted(len(trials), 'trial')}.",
        summary=Table("Settings that were tried", list(_TRIED.values()), rows),
        repeat=f"freshband reproduce choice --out {_folder(path)}",
    )


def _folder(path: Path) -> str:
    return shlex.quote(str(path.parent))
