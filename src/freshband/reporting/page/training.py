"""What the file of one training run has to show."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import xarray as xr

from freshband.errors import FreshbandError
from freshband.federated.settings import Training
from freshband.policy import has_detector
from freshband.reporting.page.air import Play, channel_map, detection_row, detection_table
from freshband.reporting.page.charts import Chart, Series, bars, curves, cut_rounds, heat_map, pool
from freshband.reporting.page.markup import Html, join, number, tag
from freshband.reporting.page.parts import (
    Part,
    air_again,
    repeat_with,
    settings_table,
    surroundings,
)

__all__ = ["contribution_map", "play_of", "show_training", "trained_on", "training_defaults"]

AGES: Final = "A row for each client: the stronger the colour, the older its update, in rounds."


def show_training(result: xr.Dataset, path: Path, title: str) -> Part:
    """Return the part of the page on one run of training."""
    from freshband.federated.result import measure_training

    config: dict[str, Any] = json.loads(result.attrs["config"])
    measures = {str(name): one.item() for name, one in measure_training(result).items()}
    rounds, clients = result.sizes["round"], result.sizes["client"]
    air, why = air_again(
        lambda: Training.as_stored(config, path.parent).build_channels(),
        config["rounds"],
        config["seed"],
        config["run"],
        rounds=rounds,
    )
    policy = policy_of(config)
    looks = has_detector(policy, config["policy_options"], measures["alarms"])
    play = play_of(result, looks=looks)
    charts = _learning(result)
    tables = []
    if air is not None:
        charts.append(channel_map(air, {policy: play}, run=config["run"]))
        noticed = np.flatnonzero(play.alarms >= 0) + 1
        if air.means is not None:
            row = detection_row(noticed, air.breakpoints, looks=looks)
            tables.append(detection_table({policy: row}))
    charts += _clients(result, {policy: result})
    notes = [] if why is None else [why]
    played = f"{rounds:,} rounds"
    if rounds < config["rounds"]:
        played = f"{rounds:,} of {config['rounds']:,} rounds"
        notes.insert(0, "The run is not finished: this is what its last checkpoint holds.")
    if result.contributions.isnull().all():
        notes.append("Nobody asked for contributions in this run, so none were computed.")
    again, repeat = _again(path, result)
    return Part(
        kind="Training",
        title=title,
        about=f"{trained_on(config)}: {policy}, {clients} clients, {played}, seed {config['seed']}",
        summary=_tiles(measures, result),
        charts=charts,
        tables=tables,
        notes=notes,
        settings=settings_table(config, training_defaults()),
        environment=surroundings(result, path),
        again=again,
        repeat=repeat,
    )


def _again(path: Path, result: xr.Dataset) -> tuple[str, str]:
    """Return how to run it again, or how to go on with a run that is not finished."""
    if path.name != "run.json":
        return "The same again", repeat_with("train", path, result)
    return "Go on with it", f"freshband train --resume {shlex.quote(str(path.parent))}"


def trained_on(config: dict[str, Any]) -> str:
    """Return what was learned over what."""
    return f"{config['dataset']} over {config['channels']}"


def policy_of(config: dict[str, Any]) -> str:
    """Return the policy's name, also of one that is not known here."""
    try:
        return Training.as_stored(config).build_policy().name
    except FreshbandError:
        return "+".join(str(config[name]) for name in ("policy", "matching") if config[name])


def training_defaults() -> dict[str, Any]:
    """Return the settings of a run for which nobody chose anything."""
    return Training().model_dump(mode="json")


def play_of(result: xr.Dataset, *, looks: bool) -> Play:
    """Return what the policy of one run did, and whether it looks for changes."""
    return Play(
        result.assignment.transpose("round", "client").values,
        result.alarm.values,
        result.channel_means.transpose("round", "channel").values,
        looks,
    )


def _tiles(measures: dict[str, Any], result: xr.Dataset) -> Html:
    heard = float(result.participation.mean())
    facts = {
        "final accuracy": number(measures["final_accuracy"], percent=True),
        "best accuracy": number(measures["best_accuracy"], percent=True),
        "spread over clients": number(measures["accuracy_spread"], percent=True),
        "mean age, rounds": number(measures["mean_age"]),
        "oldest update, rounds": number(measures["max_age"]),
        "cumulative AoI variance": number(measures["cumulative_variance"]),
        "updates that got through": number(heard, percent=True),
        "Jain index of fairness": number(measures["jain"]),
    }
    tiles = (
        tag("div", tag("dt", name), tag("dd", value), class_="tile")
        for name, value in facts.items()
    )
    return tag("dl", join(tiles), class_="tiles")


def _one(result: xr.Dataset, name: str) -> Series:
    return Series(result["round"].values, result[name].values[None].astype(np.float64))


def _learning(result: xr.Dataset) -> list[Chart]:
    looks = result.isel(round=result.accuracy.notnull().values)
    by_client = looks.client_accuracy
    accuracy = {"test set": _one(looks, "accuracy")}
    if by_client.notnull().any():
        for name, values in {
            "client best off": by_client.max("client"),
            "client worst off": by_client.min("client"),
        }.items():
            accuracy[name] = Series(looks["round"].values, values.values[None])
    return [
        curves(
            "accuracy",
            "Accuracy",
            "The share of the test set classified rightly after each round, and what the clients "
            "best and worst off can expect on samples like their own.",
            accuracy,
            y_title="accuracy",
            percent=True,
        ),
        curves(
            "loss",
            "Loss",
            "Mean cross-entropy on the test set; lower is better.",
            {"test set": _one(looks, "loss")},
            y_title="loss",
            log=True,
        ),
    ]


def _clients(result: xr.Dataset, runs: dict[str, xr.Dataset]) -> list[Chart]:
    rounds = result["round"].values
    ages = result.ages.transpose("round", "client").values
    cuts = cut_rounds(len(rounds), ages.shape[1])
    found = [
        heat_map(
            "ages", "Age of every client", AGES, {"age": pool(ages, cuts)}, cuts,
            rows="client", unit="age", low=1,
        ),
        curves(
            "age",
            "Ages over time",
            "The mean age over clients and the oldest one, in rounds; 1 would be an update from "
            "everybody in every round.",
            {
                "mean": Series(rounds, ages.mean(axis=1)[None]),
                "oldest": Series(rounds, ages.max(axis=1)[None].astype(np.float64)),
            },
            y_title="age",
        ),
        bars(
            "participation",
            "Participation",
            "The share of rounds in which each client's update got through; bars of one height "
            "are fair.",
            result.participation.values,
            x_title="client",
            y_title="share of rounds",
        ),
        *_by_client(result),
        curves(
            "variance",
            "Fairness over time",
            "The variance of ages over clients, summed over rounds; a flat curve means that "
            "nobody is left waiting longer than the others.",
            {"variance": _one(result, "cumulative_variance")},
            y_title="cumulative AoI variance",
        ),
    ]  # fmt: skip
    return found + contribution_map(runs)


def _by_client(result: xr.Dataset) -> list[Chart]:
    """Return what the last look at the test set means to each client, if there was one."""
    known = result.client_accuracy.transpose("round", "client").values
    known = known[~np.isnan(known).all(axis=1)]
    if not len(known):
        return []
    return [
        bars(
            "clients",
            "Accuracy by client",
            "The accuracy each client can expect in the end on new samples like its own.",
            np.nan_to_num(known[-1]),
            x_title="client",
            y_title="accuracy",
        )
    ]


def contribution_map(runs: Mapping[str, xr.Dataset], start: str = "") -> list[Chart]:
    """Return who contributed when, for the policies that computed it; an empty list for none."""
    valued = {name: one for name, one in runs.items() if one.contributions.notnull().any()}
    if not valued:
        return []
    some = next(iter(valued.values()))
    cuts = cut_rounds(some.sizes["round"], some.sizes["client"], len(valued))
    return [
        heat_map(
            "contribution",
            "Contribution over time",
            "A row for each client: the stronger the colour, the more the model would lose "
            "without its updates, by the paper's leave-one-out measure.",
            {
                name: pool(one.contributions.transpose("round", "client").values, cuts)
                for name, one in valued.items()
            },
            cuts,
            rows="client",
            unit="contribution",
            low=0,
            start=list(valued).index(start) if start in valued else 0,
        )
    ]
