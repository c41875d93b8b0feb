"""The part of the page on one run of training."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from freshband._policy import has_detector
from freshband.errors import FreshbandError
from freshband.federated.settings import Training
from freshband.reporting._air import cut_rounds, pool
from freshband.reporting._fleet import end_with_fleet
from freshband.reporting._numbers import number
from freshband.reporting._page import parts
from freshband.reporting._page.air import Play, channel_map, detection_row, detection_table
from freshband.reporting._page.charts import Chart, bars, curves, heat_map, look_of
from freshband.reporting._series import Series


def show_training(result: xr.Dataset, path: Path, title: str) -> parts.Part:
    """Return the part of the page on one run of training."""
    from freshband.federated.result import _spelt_today, measure_training

    result = _spelt_today(result)
    config: dict[str, Any] = json.loads(result.attrs["config"])
    measures = {str(name): one.item() for name, one in measure_training(result).items()}
    rounds, clients, run = result.sizes["round"], result.sizes["client"], config["run"]
    air, notes = parts.air_again(
        lambda: Training.as_stored(config, path.parent).build_channels(),
        config,
        run,
        rounds=rounds,
    )
    policy = _policy_of(config)
    looks = has_detector(policy, config["policy_options"], measures["alarms"])
    play = play_of(result, looks=looks)
    charts, tables = _learning(result), []
    if air is not None:
        charts.append(channel_map(air, {policy: play}, run=run))
        if air.means is not None:
            noticed = np.flatnonzero(play.alarms >= 0) + 1
            row = detection_row(noticed, air.breakpoints, looks=looks)
            tables.append(detection_table({policy: [row]}))
    charts += _clients(result, policy)
    played = f"{rounds:,} rounds"
    if rounds < config["rounds"]:
        played = f"{rounds:,} of {config['rounds']:,} rounds"
        notes.insert(0, "The run is not finished: this is its last checkpoint.")
    notes += fleet_notes(result)
    if result.contributions.isnull().all():
        notes.append("This run did not use contributions, so none were computed.")
    again, repeat = "Repeat it", parts.repeat_with("train", path, result)
    if path.name == "run.json":
        again = "Resume it"
        repeat = f"freshband train --resume {shlex.quote(str(path.parent))}"
    return parts.Part(
        kind="Training",
        title=title,
        about=f"{config['dataset']} over {config['channels']}: {policy}, {clients} clients, "
        f"{played}, seed {config['seed']}" + end_with_fleet(config),
        tiles=_tiles(measures, float(result.participation.mean())),
        charts=charts,
        tables=tables,
        notes=notes,
        settings=parts.settings_table(config, Training()),
        environment=parts.surroundings(result, path),
        again=again,
        repeat=repeat,
    )


def fleet_notes(result: xr.Dataset) -> list[str]:
    """Return what a reader must know of a fleet to read the ages."""
    from freshband.federated.result import counted_ages

    notes = []
    if "present" in result:
        share = f"{float(result.present.mean()):.0%}"
        notes.append(
            f"Clients were there in {share} of their rounds: ages do not count in the others."
        )
    if "expected_ages" in result:
        off = float(abs(result.expected_ages - counted_ages(result)).mean())
        notes.append(
            "Acknowledgements were late or lost: ages are the true ones. The scheduler's were off "
            f"by {off:.2f} rounds on average."
        )
    return notes


def _policy_of(config: dict[str, Any]) -> str:
    """Return the policy's name, even if the policy is not registered here."""
    try:
        return Training.as_stored(config).build_policy().name
    except FreshbandError:
        return "+".join(str(config[name]) for name in ("policy", "matching") if config[name])


def play_of(result: xr.Dataset, *, looks: bool) -> Play:
    """Return the decisions of the policy in one run, and whether it looks for changes."""
    return Play(
        result.assignment.transpose("round", "client").values,
        result.alarm.values,
        result.channel_means.transpose("round", "channel").values,
        looks,
    )


def _tiles(measures: dict[str, Any], heard: float) -> dict[str, str]:
    return {
        "final accuracy": number(measures["final_accuracy"], percent=True),
        "best accuracy": number(measures["best_accuracy"], percent=True),
        "spread over clients": number(measures["accuracy_spread"], percent=True),
        "mean age, rounds": number(measures["mean_age"]),
        "oldest update, rounds": number(measures["max_age"]),
        "cumulative AoI variance": number(measures["cumulative_variance"]),
        "updates that got through": number(heard, percent=True),
        "updates refused": number(measures["refused"]),
        "of these, too long": number(measures["too_long"]),
        "Jain index of fairness": number(measures["jain"]),
    }


def _one(values: xr.DataArray) -> Series:
    return Series(values["round"].values, values.values[None].astype(np.float64))


def _learning(result: xr.Dataset) -> list[Chart]:
    looks = result.isel(round=result.accuracy.notnull().values)
    accuracy = {"test set": _one(looks.accuracy)}
    if looks.client_accuracy.notnull().any():
        accuracy["best client"] = _one(looks.client_accuracy.max("client"))
        accuracy["worst client"] = _one(looks.client_accuracy.min("client"))
    return [
        curves(**look_of("training.accuracy"), series=accuracy),
        curves(**look_of("loss"), series={"test set": _one(looks.loss)}),
    ]


def _clients(result: xr.Dataset, policy: str) -> list[Chart]:
    from freshband.federated.result import counted_ages

    known = counted_ages(result)
    ages = {"mean": _one(known.mean("client")), "oldest": _one(known.max("client"))}
    charts = [
        client_map(look_of("ages"), {policy: known}),
        curves(**look_of("training.age"), series=ages),
        bars(**look_of("training.participation"), heights=result.participation.values),
    ]
    looks = result.client_accuracy.dropna("round", how="all")
    if looks.sizes["round"]:
        last = np.nan_to_num(looks.isel(round=-1).values)
        charts.append(bars(**look_of("training.clients"), heights=last))
    variance = {"variance": _one(result.cumulative_variance)}
    charts.append(curves(**look_of("variance"), series=variance))
    return charts + contribution_maps({policy: result})


def client_map(
    look: Mapping[str, Any], views: Mapping[str, xr.DataArray], start: str = ""
) -> Chart:
    """Return a map of clients over rounds, averaged over columns of rounds."""
    some = next(iter(views.values()))
    cuts = cut_rounds(some.sizes["round"], some.sizes["client"], len(views))
    pooled = {
        name: pool(one.transpose("round", "client").values, cuts) for name, one in views.items()
    }
    return heat_map(**look, views=pooled, cuts=cuts, start=start)


def contribution_maps(runs: Mapping[str, xr.Dataset], start: str = "") -> list[Chart]:
    """Return contributions over time of the policies that computed them, if any did."""
    valued = {
        name: one.contributions for name, one in runs.items() if one.contributions.notnull().any()
    }
    return [client_map(look_of("contribution"), valued, start)] if valued else []
