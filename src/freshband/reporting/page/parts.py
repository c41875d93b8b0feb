"""A part of the page: what one result file has to show."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from freshband.channels.base import ChannelModel
from freshband.errors import FreshbandError
from freshband.reporting.page.air import MOST_DRAWN, Air, draw_air
from freshband.reporting.page.charts import Chart, Series
from freshband.reporting.page.markup import Html, number, table
from freshband.simulation.result import mean_and_error

__all__ = [
    "Part",
    "Picture",
    "air_again",
    "flatten",
    "measure_table",
    "over_policies",
    "repeat_with",
    "same_air_note",
    "settings_table",
    "surroundings",
]


class Picture(NamedTuple):
    """A picture on the page: the file it comes from, what it shows, and its data as a link."""

    path: Path
    says: str
    data: str


@dataclass(frozen=True)
class Part:
    """What the page shows of one file.

    Attributes
    ----------
    kind, title, about : str
        What it is, what to call it, and one line on what was run.
    summary : Html
        The numbers at a glance.
    pictures : list of Picture
        Files that are shown as they are.
    charts : list of Chart
        In the order of the page.
    tables : list of Html
        Shown below the charts.
    notes : list of str
        What could not be shown, and why.
    settings, environment : Html, optional
        The configuration and where it ran.
    repeat : str
        A command that runs it again, if there is one; ``again`` says what it does.
    """

    kind: str
    title: str
    about: str
    summary: Html | None = None
    settings: Html | None = None
    environment: Html | None = None
    repeat: str = ""
    again: str = "The same again"
    pictures: list[Picture] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    tables: list[Html] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def over_policies(
    array: xr.DataArray, along: str = "round", *, from_zero: bool = False
) -> dict[str, Series]:
    """Return a series for each policy of an array over (policy, run, ``along``)."""
    places = array[along].values
    found: dict[str, Series] = {}
    for name in array.policy.values:
        values = array.sel(policy=name).transpose("run", along).values.astype(np.float64)
        x = places
        if from_zero:
            x = np.concatenate([[0], places])
            values = np.concatenate([np.zeros((len(values), 1)), values], axis=1)
        found[str(name)] = Series(x, values)
    return found


def measure_table(caption: str, measures: xr.Dataset, told: Mapping[str, str]) -> Html:
    """Return mean and standard error over runs of some measures, a row for each policy.

    ``told`` gives the heading of each; those that end in % are shares of one.
    """
    known = {
        name: head
        for name, head in told.items()
        if name in measures and bool(measures[name].notnull().any())
    }
    rows = []
    for policy in measures.policy.values:
        row = [str(policy)]
        for name, head in known.items():
            found = mean_and_error(measures[name].sel(policy=policy).values)
            mean, error = (None, None) if found is None else (found["mean"], found["se"])
            row.append(number(mean, error, percent=head.endswith("%")))
        rows.append(row)
    heads = [head.removesuffix("%").rstrip(", ") for head in known.values()]
    return table(caption, ["policy", *heads], rows)


# ---------------------------------------------------------------------------------------- the air


def air_again(
    build: Callable[[], ChannelModel],
    horizon: int,
    seed: int,
    run: int,
    *,
    rounds: int,
    views: int = 1,
) -> tuple[Air | None, str | None]:
    """Draw the air of a run again, or say why that cannot be done here."""
    try:
        model = build()
        if rounds * model.n_channels > MOST_DRAWN:
            return None, f"The channel map is left out: {rounds:,} rounds take long to draw again."
        return draw_air(model, horizon, seed, run, rounds=rounds, views=views), None
    except FreshbandError as error:
        return None, f"The air cannot be drawn again here: {error}"


def same_air_note(result: xr.Dataset, rest: str) -> list[str]:
    """Say what standard errors are of where all runs met the same states: the rest."""
    if "same_air" not in result.attrs:
        return []
    return [
        "All runs met the same states of the channels, in which nothing is random: standard errors "
        f"are those of {rest}."
    ]


# ------------------------------------------------------------------------ configuration, machine


def flatten(config: Mapping[str, Any], above: str = "") -> Iterable[tuple[str, str]]:
    """Return settings one by one, those of tables with dots in their names."""
    for key, value in config.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{name}.")
        else:
            yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def settings_table(config: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> Html:
    """Return the configuration, where defaults are known with a word on what differs."""
    rows: list[Sequence[str]] = []
    for name, text in flatten(config):
        if defaults is None:
            rows.append([name, text])
        else:
            usual = name in defaults and defaults[name] == config.get(name)
            rows.append([name, text, "default" if usual else "chosen"])
    head = ["setting", "value"] + ([] if defaults is None else ["from"])
    return table("Configuration", head, rows)


def surroundings(result: xr.Dataset, path: Path) -> Html:
    """Return where a result comes from: versions, device, time, file."""
    attrs = result.attrs
    facts = {
        "file": path.name,
        "format": str(attrs.get("format", "")),
        "freshband": str(attrs.get("freshband", "")),
        **{str(k): str(v) for k, v in json.loads(attrs.get("versions", "{}")).items()},
        "device": str(attrs.get("device", "cpu")),
        "seconds": number(float(attrs.get("seconds", np.nan))),
    }
    return table("Environment", ["what", "value"], facts.items())


def repeat_with(command: str, path: Path, result: xr.Dataset) -> str:
    """Return the command that runs a result again."""
    files = json.loads(result.attrs.get("imported", "[]"))
    imports = "".join(f"--import {shlex.quote(name)} " for name in files)
    return f"freshband {imports}{command} --like {shlex.quote(str(path))}"
