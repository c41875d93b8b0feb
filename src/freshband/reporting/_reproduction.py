"""The page that compares paper and library, generated from files of ``freshband reproduce``.

Numbers come from the results and verdicts, prose from Markdown files beside them: ``NAME-SCALE.md``
follows the table of an experiment, and ``introduction.md``, ``choice.md``, ``earlier.md`` and
``deviations.md`` hold the other sections.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from freshband.errors import FileError
from freshband.experiments._choice import (
    CHOICE,
    EARLIER,
    Setting,
    is_chosen,
    read_trials,
    unfinished,
)
from freshband.experiments.base import (
    Experiment,
    _experiment_names,
    _read_json,
    _read_rows,
    _with_verdicts,
)
from freshband.reporting._numbers import written_number
from freshband.statistics import margin


def reproduction_page(folder: Path) -> str:
    """Return the page as Markdown; the full scale of an experiment is preferred, then all its data.

    Pictures are expected in a folder of the same name beside the page.
    """
    parts = [_prose(folder, "introduction") or "# Reproduction\n"]
    for name in _experiment_names():
        parts += [_section(experiment, folder) for experiment in _with_verdicts(name, folder)]
    parts += _left_open(folder)
    if len(parts) == 1:
        raise FileError(f"{folder} holds neither verdicts nor trials of freshband reproduce")
    return "\n".join(filter(None, [*parts, _earlier(folder), _prose(folder, "deviations")]))


def _prose(folder: Path, name: str) -> str:
    path = folder / f"{name}.md"
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _section(experiment: Experiment, folder: Path) -> str:
    claims = _read_rows(folder / experiment.verdicts)
    made = _read_json(folder / experiment.verdicts)["made"]
    seconds = ", ".join(f"{took:,.0f} s on {where}" for where, took in made["seconds"].items())
    versions = ", ".join(f"{k} {v}" for k, v in made["versions"].items())
    title = ", ".join(filter(None, [experiment.title, experiment.dataset, experiment.air]))
    prose = _prose(folder, experiment.file(experiment.name, ""))
    imports = "".join(f" --import {Path(file).name}" for file in made["imported"])
    lines = [
        "## " + ": ".join(filter(None, [experiment.part, title])),
        "",
        f"*{experiment.question}*",
        "",
        "```shell",
        f"freshband{imports} {experiment.command} --out reproduction" + _place(made["seconds"]),
        "```",
        "",
        *(
            f"![{title}]({folder.name}/{picture})"
            for picture in (experiment.file(shown, ".png") for shown in experiment.figures)
            if (folder / picture).exists()
        ),
        "",
        "| statement | paper | measured, 95 % interval | p | verdict |",
        "| --- | --- | --- | ---: | --- |",
        *(_row(claim) for claim in claims),
        "",
        *([prose] if prose else []),
        f"Scale {experiment.scale}, {made['files']} files; computed in {seconds}; freshband "
        f"{made['freshband']}, {versions}.",
        "",
    ]
    return "\n".join(lines)


def _place(devices: Iterable[str]) -> str:
    """Return the options that say where something was computed, such as "cuda (H200) in bf16"."""
    chosen = {name.rpartition(" in ")[2] for name in devices if " in " in name}
    return "".join(f" --device cuda --precision {precision}" for precision in sorted(chosen))


def _devices(trials: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return where trials were computed."""
    return sorted({f"{trial['device']} in {trial['precision']}" for trial in trials})


def _left_open(folder: Path) -> list[str]:
    """Show the trials for the settings that the paper leaves open, and those of an earlier rule."""
    files = {file: read_trials(folder, file) for file in (CHOICE, EARLIER)}
    files = {file: trials for file, trials in files.items() if trials}
    if not files:
        return []
    lines = [
        "## What the paper leaves open in training",
        "",
        "```shell",
        "freshband reproduce choice --data-dir data --out reproduction"
        + _place(_devices(next(iter(files.values())))),
        "```",
        "",
    ]
    for file, trials in files.items():
        told = f"Computed on {' and '.join(_devices(trials))}; the chosen settings are bold."
        if file == CHOICE and (left := unfinished(trials)):
            told += f" Not finished yet: {'; '.join(map(', '.join, left))}."
        head = "| data, air | E | batch | η | accuracy of random | of runs |"
        lines += [_prose(folder, file.removesuffix(".json")) + told, "", head]
        lines += ["| --- | ---: | ---: | ---: | ---: | --- |", *_trial_rows(trials), ""]
    return ["\n".join(lines)]


def _earlier(folder: Path) -> str:
    """Show the earlier definitions of ours: rows of a table, whose cells hold a value per run."""
    path = folder / "earlier.csv"
    if not path.exists():
        return ""
    head, *rows = csv.reader(path.read_text(encoding="utf-8").splitlines())
    lines = [f"| {' | '.join(head)} |", "| --- | --- | --- | ---: | ---: | ---: |"]
    for *names, late, last, variance in rows:
        cells = [_over_runs(late, "%"), _over_runs(last, "%"), _over_runs(variance)]
        lines.append(f"| {' | '.join([*names, *cells])} |")
    return "\n".join([_prose(folder, "earlier") + lines[0], *lines[1:], ""])


def _over_runs(cell: str, unit: str = "") -> str:
    """Return the mean of values that are separated by spaces, with its 95 % interval."""
    values = [float(value) for value in cell.split()]
    mean, half = sum(values) / len(values), float(margin(values))
    return written_measure({"ours": mean, "low": mean - half, "high": mean + half, "unit": unit})


def _trial_rows(trials: Sequence[dict[str, Any]]) -> Iterator[str]:
    for trial in trials:
        runs = trial["accuracies"]
        mark = "**" if is_chosen(trials, trial) else ""
        cells = [f"{trial['dataset']}, {trial['air']}", *(trial[name] for name in Setting._fields)]
        cells += [f"{sum(runs) / len(runs):.1%}", ", ".join(f"{run:.1%}" for run in runs)]
        yield f"| {' | '.join(f'{mark}{cell}{mark}' for cell in cells)} |"


def _row(claim: Mapping[str, Any]) -> str:
    verdict = f"**{claim['verdict']}**" + (f": {claim['why']}" if claim["why"] else "")
    cells = [claim["what"], claim["paper"], written_measure(claim), written_p(claim["p"]), verdict]
    return f"| {' | '.join(cells)} |"


def written_measure(claim: Mapping[str, Any]) -> str:
    """Return the measured mean with its unit and 95 % interval."""
    mean = f"{written_number(claim['ours'])} {claim['unit']}".strip()
    if math.isnan(claim["low"]):
        return mean
    return f"{mean} [{written_number(claim['low'])}, {written_number(claim['high'])}]"


def written_p(p: float) -> str:
    """Return a p value in three decimals, or that it is smaller or missing.

    Examples
    --------
    >>> written_p(0.0321), written_p(1e-9), written_p(float("nan"))
    ('0.032', '< 0.001', '-')
    """
    return "-" if math.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"
