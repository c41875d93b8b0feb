"""A part of the page: the contents of one result file."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import xarray as xr

from freshband.channels.adversary import ReactingModel
from freshband.channels.base import ChannelModel, links_differ
from freshband.errors import FreshbandError
from freshband.fleet.conditions import open_conditions
from freshband.parameters import Parameters
from freshband.reporting._air import MOST_DRAWN, Air, average_clients, cut_rounds, read_air
from freshband.reporting._fleet import fleet_of
from freshband.reporting._numbers import Table, number
from freshband.reporting._page.charts import Chart, curves, look_of
from freshband.reporting._series import over_policies
from freshband.statistics import mean_and_error

AGE_MEASURES: Final = {
    "regret": "AoI regret",
    "regret_rotate": "AoI regret, rotating oracle",
    "regret_fixed": "AoI regret, best fixed set",
    "mean_age": "mean age",
    "max_age": "oldest",
    "cumulative_variance": "cumulative variance",
    "jain": "Jain index",
    "alarms": "alarms",
}


class Picture(NamedTuple):
    """A picture on the page: its file, its description, and its data as a link."""

    path: Path
    says: str
    data: str


@dataclass(frozen=True)
class Part:
    """The contents of one file, in the order of the page."""

    kind: str
    title: str
    about: str  # one line that describes the run
    summary: Table | None = None  # the numbers at a glance
    tiles: Mapping[str, str] = field(default_factory=dict)  # the same for a single run
    pictures: list[Picture] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)  # below the charts
    notes: list[str] = field(default_factory=list)  # what could not be shown, and why
    settings: Table | None = None
    environment: Table | None = None
    repeat: str = ""  # a command that repeats it, if there is one
    again: str = "Repeat it"  # what that command does


def measure_table(measures: xr.Dataset, told: Mapping[str, str]) -> Table:
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
            found = mean_and_error(measures[name].sel(policy=policy).values) or {}
            row.append(number(found.get("mean"), found.get("se"), percent=head.endswith("%")))
        rows.append(row)
    heads = [head.removesuffix(", %") for head in known.values()]
    return Table("Policies at a glance: mean ± standard error", ["policy", *heads], rows)


def regret_charts(result: xr.Dataset, suffix: str = "") -> list[Chart]:
    """Return the regret of every policy, if the result has it; an empty list otherwise."""
    known = bool(result.regret.notnull().any())
    measure, oracle = (
        ("regret", "the mean+age oracle") if known else ("regret_fixed", "the best fixed set")
    )
    if f"{measure}{suffix}" not in result:
        return []
    look = look_of("regret")
    look["says"] = look["says"].format(oracle=oracle)
    return [curves(**look, series=over_policies(result[f"{measure}{suffix}"], from_zero=True))]


# ---------------------------------------------------------------------------------------- the air


def air_again(
    build: Callable[[], ChannelModel],
    config: Mapping[str, Any],
    run: int,
    *,
    rounds: int,
    views: int = 1,
) -> tuple[Air | None, list[str]]:
    """Regenerate the first rounds of a run's air, or return why that is impossible here."""
    try:
        model, notes = build(), []
        clients = config["clients"] if links_differ(model) else None
        if clients is not None:
            notes.append("Links differ per client: the channel map shows averages over clients.")
        if isinstance(model, ReactingModel):
            notes.append("The channels react to the clients: the channel map shows the free air.")
        fates, fleet = None, fleet_of(config)
        if fleet.outages is not None:
            notes.append("Channels come and go: the channel map shows missing ones as bad.")
            fates = open_conditions(fleet, config["clients"], model.n_channels, config["seed"], run)
        if rounds * model.n_channels * (clients or 1) > MOST_DRAWN:
            told = f"The channel map is left out: regenerating {rounds:,} rounds takes too long."
            return None, [told]
        cuts = cut_rounds(rounds, model.n_channels, 2 * views + 2)
        air = read_air(model, config["rounds"], config["seed"], run, cuts, clients, fates)
        return air if clients is None else average_clients(air), notes
    except FreshbandError as error:
        return None, [f"The air cannot be regenerated here: {error}"]


def same_air_note(result: xr.Dataset, rest: str) -> list[str]:
    """Return a note on what standard errors mean where all runs met the same states."""
    if "same_air" not in result.attrs:
        return []
    return [
        "All runs met the same channel states, which are not random: standard errors "
        f"come only from {rest}."
    ]


# ------------------------------------------------------------------------ configuration, machine


def _flatten(config: Mapping[str, Any], above: str = "") -> Iterable[tuple[str, str]]:
    """Return settings one by one; the names of nested ones have dots."""
    for key, value in config.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, f"{name}.")
        else:
            yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def settings_table(config: Mapping[str, Any], defaults: Parameters | None = None) -> Table:
    """Return the configuration and, where defaults are known, whether each setting was chosen."""
    rows = [list(pair) for pair in _flatten(config)]
    if defaults is None:
        return Table("Configuration", ["setting", "value"], rows)
    usual = defaults.model_dump(mode="json")
    for row in rows:
        kept = row[0] in usual and usual[row[0]] == config.get(row[0])
        row.append("default" if kept else "chosen")
    return Table("Configuration", ["setting", "value", "from"], rows)


def surroundings(result: xr.Dataset, path: Path) -> Table:
    """Return the origin of a result: versions, device, time, file."""
    attrs = result.attrs
    facts = {
        "file": path.name,
        "format": str(attrs.get("format", "")),
        "freshband": str(attrs.get("freshband", "")),
        **{str(k): str(v) for k, v in json.loads(attrs.get("versions", "{}")).items()},
        "device": str(attrs.get("device", "cpu")),
        "seconds": number(float(attrs.get("seconds", np.nan))),
    }
    return Table("Environment", ["what", "value"], list(facts.items()))


def repeat_with(command: str, path: Path, result: xr.Dataset) -> str:
    """Return the command that repeats a result."""
    files = json.loads(result.attrs.get("imported", "[]"))
    imports = "".join(f"--import {shlex.quote(name)} " for name in files)
    return f"freshband {imports}{command} --like {shlex.quote(str(path))}"
