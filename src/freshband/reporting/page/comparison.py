"""What the file of a comparison has to show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import xarray as xr

from freshband.federated.settings import Training
from freshband.locating import find_again
from freshband.reporting.page.air import channel_map, detection_row, detection_table
from freshband.reporting.page.charts import Chart, curves, cut_rounds, heat_map, pool
from freshband.reporting.page.markup import Html
from freshband.reporting.page.parts import (
    Part,
    air_again,
    measure_table,
    over_policies,
    repeat_with,
    same_air_note,
    settings_table,
    surroundings,
)
from freshband.reporting.page.training import (
    AGES,
    contribution_map,
    play_of,
    trained_on,
    training_defaults,
)

__all__ = ["show_comparison"]

_TOLD: Final = {
    "final_accuracy": "final accuracy, %",
    "mean_accuracy": "mean accuracy, %",
    "accuracy_spread": "spread over clients, %",
    "regret": "AoI regret",
    "regret_fixed": "AoI regret, best fixed set",
    "mean_age": "mean age",
    "max_age": "oldest",
    "cumulative_variance": "cumulative variance",
    "jain": "Jain index",
    "alarms": "alarms",
}
_MEANS: Final = (
    "This file keeps means over clients, as freshband reproduce has it: the command below computes "
    "every client's age, the channels chosen and contributions again."
)
_REPLACED: Final = ("scheduler", "matching", "policy_options", "run")  # of settings, by policies


def show_comparison(result: xr.Dataset, path: Path, title: str) -> Part:
    """Return the part of the page on policies that trained under the same conditions."""
    from freshband.federated.comparison import measure_comparison

    config: dict[str, Any] = json.loads(result.attrs["config"])
    settings: dict[str, Any] = config["settings"]
    measures = measure_comparison(result)
    runs, rounds, clients = (result.sizes[dim] for dim in ("run", "round", "client"))
    first = {str(name): result.sel(policy=name).isel(run=0) for name in result.policy.values}
    ages = _mean_age(result).isel(run=0).mean("round")
    freshest = str(ages.idxmin("policy").item())  # what maps begin with
    charts = [*_learning(result), *_fairness(result)]
    looks = {name: bool(measures.alarms.sel(policy=name).notnull().all()) for name in first}
    near = {"channel_options": find_again(settings["channel_options"], path.parent)[0]}
    maps, tables, notes = _air(result, settings | near, first, freshest, looks)
    if "ages" in result:
        maps += [_ages(first, freshest), *contribution_map(first, freshest)]
    else:
        notes.append(_MEANS)
    shared = {name: value for name, value in settings.items() if name not in _REPLACED}
    shared |= {name: config[name] for name in ("policies", "policy_options", "runs")}
    several = f"{runs} runs" if runs > 1 else "1 run"
    return Part(
        kind="Comparison",
        title=title,
        about=f"{trained_on(settings)}: {clients} clients, {rounds:,} rounds, {several}, seed "
        f"{settings['seed']}",
        summary=measure_table("Policies at a glance: mean ± standard error", measures, _TOLD),
        charts=[*charts, *maps],
        tables=tables,
        notes=[
            *notes,
            *same_air_note(
                result, "data, initial weights, batches and a policy's own random choices"
            ),
        ],
        settings=settings_table(shared, training_defaults()),
        environment=surroundings(result, path),
        repeat=repeat_with("compare", path, result),
    )


def _learning(result: xr.Dataset) -> list[Chart]:
    looks = result.isel(round=result.accuracy.notnull().all(["policy", "run"]).values)
    return [
        curves(
            "accuracy",
            "Accuracy",
            "The share of the test set classified rightly after each round, on a scale that suits "
            "what follows the first tenth of them; higher is better.",
            over_policies(looks.accuracy),
            y_title="test accuracy",
            percent=True,
            late=True,
        ),
        *_regret(result),
        curves(
            "spread",
            "Spread of accuracy over clients",
            "The standard deviation over clients of the accuracy each can expect on samples like "
            "its own; lower is fairer.",
            over_policies(looks.accuracy_spread),
            y_title="standard deviation",
            percent=True,
            late=True,
        ),
        curves(
            "loss",
            "Loss",
            "Mean cross-entropy on the test set; lower is better.",
            over_policies(looks.loss),
            y_title="loss",
            log=True,
            late=True,
        ),
    ]


def _regret(result: xr.Dataset) -> list[Chart]:
    known = bool(result.regret.notnull().any())
    measure, oracle = (
        ("regret", "the mean+age oracle") if known else ("regret_fixed", "the best fixed set")
    )
    if measure not in result:
        return []
    return [
        curves(
            "regret",
            "AoI regret",
            f"How much age all clients piled up beyond {oracle} on the same air; lower is better, "
            "and a curve that flattens has learned.",
            over_policies(result[measure], from_zero=True),
            y_title="cumulative regret",
            log=True,
        )
    ]


def _fairness(result: xr.Dataset) -> list[Chart]:
    return [
        curves(
            "age",
            "Ages over time",
            "The mean age over clients, in rounds; 1 would be an update from everybody in every "
            "round.",
            over_policies(_mean_age(result)),
            y_title="mean age",
        ),
        curves(
            "variance",
            "Fairness over time",
            "The variance of ages over clients, summed over rounds; a flat curve means that "
            "nobody is left waiting longer than the others.",
            over_policies(result.cumulative_variance, from_zero=True),
            y_title="cumulative AoI variance",
            log=True,
        ),
        curves(
            "participation",
            "Participation",
            "The share of rounds in which a client got through, the one worst off in each run "
            "first; a level line is fair.",
            over_policies(_ranked(result.participation), "client"),
            x_title="client, worst off first",
            y_title="share of rounds",
            percent=True,
            markers=True,
        ),
        curves(
            "clients",
            "Accuracy by client",
            "The accuracy a client can expect in the end on samples like its own, the one worst "
            "off in each run first.",
            over_policies(_ranked(_last_look(result)), "client"),
            x_title="client, worst off first",
            y_title="accuracy",
            percent=True,
            markers=True,
        ),
    ]


def _last_look(result: xr.Dataset) -> xr.DataArray:
    """Return what the last look at the test set means to each client."""
    if "client_accuracy" not in result:
        return result["final_client_accuracy"]
    looked = np.flatnonzero(result.accuracy.notnull().all(["policy", "run"]).values)
    return result["client_accuracy"].isel(round=looked[-1] if len(looked) else -1, drop=True)


def _mean_age(result: xr.Dataset) -> xr.DataArray:
    """Return mean ages, averaged over columns of rounds where there are many."""
    ages = result.ages.mean("client") if "ages" in result else result.mean_age
    ages = ages.transpose("round", "policy", "run")
    cuts = cut_rounds(ages.sizes["round"])
    pooled = pool(ages.values, cuts)
    return xr.DataArray(
        pooled,
        dims=("round", "policy", "run"),
        coords={"round": result["round"].values[cuts[1:] - 1], "policy": result.policy.values},
    )


def _ranked(values: xr.DataArray) -> xr.DataArray:
    ranked = values.transpose("policy", "run", "client")
    ranked = ranked.copy(data=np.sort(ranked.values, axis=-1))
    return ranked.assign_coords(client=np.arange(1, ranked.sizes["client"] + 1))


def _air(
    result: xr.Dataset,
    settings: dict[str, Any],
    first: dict[str, xr.Dataset],
    freshest: str,
    looks: dict[str, bool],
) -> tuple[list[Chart], list[Html], list[str]]:
    """Return the map of the first run, changes noticed over all, and what could not be shown."""
    rounds, runs = result.sizes["round"], [int(run) for run in result.run.values]
    found: dict[str, list[list[float]]] = {name: [] for name in first}
    maps = []
    for run in runs:
        air, why = air_again(
            lambda: Training.as_stored(settings).build_channels(),
            settings["rounds"],
            settings["seed"],
            run,
            rounds=rounds,
            views=len(first),
        )
        if air is None:
            return [], [], [] if why is None else [why]
        if run == runs[0]:
            whole = "assignment" in result  # else nobody knows what was chosen
            plays = {name: play_of(one, looks=looks[name]) for name, one in first.items() if whole}
            start = list(first).index(freshest)
            maps.append(channel_map(air, plays, run=run, start=start))
        if air.means is None:
            return maps, [], []
        for name, rows in found.items():
            raised = np.flatnonzero(result.alarm.sel(policy=name, run=run).values >= 0) + 1
            rows.append(detection_row(raised, air.breakpoints, looks=looks[name]))
    means = {
        name: [_mean(column) for column in zip(*rows, strict=True)] for name, rows in found.items()
    }
    return maps, [detection_table(means)], []


def _mean(values: tuple[float, ...]) -> float:
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else float("nan")


def _ages(first: dict[str, xr.Dataset], freshest: str) -> Chart:
    some = next(iter(first.values()))
    cuts = cut_rounds(some.sizes["round"], some.sizes["client"], len(first))
    views = {
        name: pool(one.ages.transpose("round", "client").values, cuts)
        for name, one in first.items()
    }
    run = int(some.run)
    return heat_map(
        "ages", "Age of every client", f"{AGES[:-1]}; run {run}.", views, cuts,
        rows="client", unit="age", low=1, start=list(first).index(freshest),
    )  # fmt: skip
