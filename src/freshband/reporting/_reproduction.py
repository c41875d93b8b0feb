"""The page that compares paper and library, generated from files of ``freshband reproduce``.

Numbers come from the results and verdicts, prose from Markdown files beside them: ``NAME-SCALE.md``
follows the table of an experiment, and ``introduction.md``, ``choice.md`` and ``deviations.md``
hold the other sections.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from freshband.errors import FileError
from freshband.experiments._choice import (
    CHOICE,
    PUBLISHED,
    Setting,
    is_chosen,
    read_trials,
    unfinished,
)
from freshband.experiments.base import (
    Experiment,
    _experiment_names,
    _read_rows,
    load_pieces,
    registry,
)
from freshband.reporting._numbers import written_number


def reproduction_page(folder: Path) -> str:
    """Return the page as Markdown; the full scale of an experiment is preferred.

    Pictures are expected in a folder of the same name beside the page.
    """
    parts = [_prose(folder, "introduction") or "# Reproduction\n"]
    for name in _experiment_names():
        for experiment in (registry[name].at("full"), registry[name].at("quick")):
            if (folder / experiment.verdicts).exists():
                parts.append(_section(experiment, folder))
                break
    parts += _left_open(folder)
    if len(parts) == 1:
        raise FileError(f"{folder} holds neither verdicts nor trials of freshband reproduce")
    return "\n".join(filter(None, [*parts, _prose(folder, "deviations")]))


def _prose(folder: Path, name: str) -> str:
    path = folder / f"{name}.md"
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _section(experiment: Experiment, folder: Path) -> str:
    claims = _read_rows(folder / experiment.verdicts)
    results = load_pieces(experiment, folder)
    made = [result.attrs for result in results.values()]
    seconds = sum(float(each["seconds"]) for each in made)
    versions = ", ".join(f"{k} {v}" for k, v in json.loads(made[-1]["versions"]).items())
    name, scale, title = experiment.name, experiment.scale, experiment.title
    prose = _prose(folder, f"{name}-{scale}")
    imported = json.loads(made[-1].get("imported", "[]"))
    imports = "".join(f" --import {Path(file).name}" for file in imported)
    lines = [
        "## " + ": ".join(filter(None, [experiment.part, title])),
        "",
        f"*{experiment.question}*",
        "",
        "```shell",
        f"freshband{imports} reproduce {name} --scale {scale} --out reproduction" + _place(made),
        "```",
        "",
        *(f"![{title}]({folder.name}/{shown}-{scale}.png)" for shown in experiment.figures),
        "",
        "| statement | paper | ours | verdict |",
        "| --- | --- | --- | --- |",
        *(_row(claim) for claim in claims),
        "",
        *([prose] if prose else []),
        f"Scale {scale}, seed 0, {len(results)} files, {seconds:,.0f} s of computing on "
        f"{_devices(made)}; freshband {made[-1]['freshband']}, {versions}.",
        "",
    ]
    return "\n".join(lines)


def _place(made: Iterable[Mapping[Any, Any]]) -> str:
    """Return the options that say where something was computed."""
    chosen = {one["precision"] for one in made if one.get("precision", "auto") != "auto"}
    return "".join(f" --device cuda --precision {precision}" for precision in sorted(chosen))


def _devices(made: Iterable[Mapping[Any, Any]]) -> str:
    names = set()
    for one in made:
        precision = one.get("precision", "auto")
        names.add(one.get("device", "cpu") + (f" in {precision}" if precision != "auto" else ""))
    return " and ".join(sorted(names))


def _left_open(folder: Path) -> list[str]:
    """Show the trials for the settings that the paper leaves open, and those of an earlier rule."""
    files = {file: read_trials(folder, file) for file in (CHOICE, PUBLISHED)}
    files = {file: trials for file, trials in files.items() if trials}
    if not files:
        return []
    lines = [
        "## What the paper leaves open in training",
        "",
        "```shell",
        "freshband reproduce choice --data-dir data --out reproduction"
        + _place(next(iter(files.values()))),
        "```",
        "",
    ]
    for file, trials in files.items():
        told = f"Computed on {_devices(trials)}; the chosen settings are bold."
        if file == CHOICE and (left := unfinished(trials)):
            told += f" Not finished yet: {'; '.join(map(', '.join, left))}."
        head = "| data, air | E | batch | η | accuracy of random | of runs |"
        lines += [_prose(folder, file.removesuffix(".json")) + told, "", head]
        lines += ["| --- | ---: | ---: | ---: | ---: | --- |", *_trial_rows(file, trials), ""]
    return ["\n".join(lines)]


def _trial_rows(file: str, trials: Sequence[dict[str, Any]]) -> Iterator[str]:
    for trial in trials:
        runs = trial["accuracies"]
        mark = "**" if is_chosen(file, trials, trial) else ""
        cells = [f"{trial['dataset']}, {trial['air']}", *(trial[name] for name in Setting._fields)]
        cells += [f"{sum(runs) / len(runs):.1%}", ", ".join(f"{run:.1%}" for run in runs)]
        yield f"| {' | '.join(f'{mark}{cell}{mark}' for cell in cells)} |"


def _row(claim: Mapping[str, Any]) -> str:
    verdict = f"**{claim['verdict']}**" + (f": {claim['why']}" if claim["why"] else "")
    return f"| {claim['what']} | {claim['paper']} | {written_measure(claim)} | {verdict} |"


def written_measure(claim: Mapping[str, Any]) -> str:
    """Return the measured value with its standard error and unit."""
    kept = [value for value in (claim["ours"], claim["error"]) if not math.isnan(value)]
    return f"{' ± '.join(map(written_number, kept))} {claim['unit']}"
