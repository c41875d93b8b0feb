"""The part of the page on a comparison."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import xarray as xr

from freshband._locating import find_again
from freshband.federated.settings import Training
from freshband.reporting._air import cut_rounds, pool
from freshband.reporting._fleet import end_with_fleet
from freshband.reporting._numbers import Table, counted
from freshband.reporting._page import parts
from freshband.reporting._page.air import channel_map, detection_row, detection_table
from freshband.reporting._page.charts import Chart, curves, look_of
from freshband.reporting._page.training import client_map, contribution_maps, fleet_notes, play_of
from freshband.reporting._series import over_policies, rank_clients

_MEASURES: Final = {
    "final_accuracy": "final accuracy, %",
    "mean_accuracy": "mean accuracy, %",
    "accuracy_spread": "spread over clients, %",
    **parts.AGE_MEASURES,
}
_MEANS: Final = (
    "This file holds means over clients, as files of freshband reproduce do: the command below "
    "computes every client's age, the channels chosen and contributions again."
)
_REPLACED: Final = ("policy", "matching", "policy_options", "run")  # settings set by policies


def show_comparison(result: xr.Dataset, path: Path, title: str) -> parts.Part:
    """Return the part of the page on policies that trained under the same conditions."""
    from freshband.federated.comparison import measure_comparison
    from freshband.federated.result import _spelt_today, counted_ages

    result = _spelt_today(result, "settings")
    config: dict[str, Any] = json.loads(result.attrs["config"])
    settings: dict[str, Any] = config["settings"]
    measures = measure_comparison(result)
    runs, rounds, clients = (result.sizes[dim] for dim in ("run", "round", "client"))
    first = {str(name): result.sel(policy=name).isel(run=0) for name in result.policy.values}
    ages = _mean_age(result)
    freshest = str(ages.isel(run=0).mean("round").idxmin("policy").item())  # shown first in maps
    looks = {name: bool(measures.alarms.sel(policy=name).notnull().all()) for name in first}
    near = {"channel_options": find_again(settings["channel_options"], path.parent)[0]}
    maps, tables, notes = _air(result, settings | near, first, freshest, looks)
    if "ages" in result:
        look = look_of("ages")
        look["says"] = f"{look['says'][:-1]}; run {int(result.run.values[0])}."
        maps.append(client_map(look, {n: counted_ages(one) for n, one in first.items()}, freshest))
        maps += contribution_maps(first, freshest)
    else:
        notes.append(_MEANS)
    shared = {name: value for name, value in settings.items() if name not in _REPLACED}
    shared |= {name: config[name] for name in ("policies", "policy_options", "runs")}
    rest = "data, initial weights, batches and a policy's own random choices"
    return parts.Part(
        kind="Comparison",
        title=title,
        about=f"{settings['dataset']} over {settings['channels']}: {clients} clients, {rounds:,} "
        f"rounds, {counted(runs, 'run')}, seed {settings['seed']}" + end_with_fleet(settings),
        summary=parts.measure_table(measures, _MEASURES),
        charts=[*_learning(result), *_fairness(result, ages), *maps],
        tables=tables,
        notes=[*notes, *fleet_notes(result), *parts.same_air_note(result, rest)],
        settings=parts.settings_table(shared, Training()),
        environment=parts.surroundings(result, path),
        repeat=parts.repeat_with("compare", path, result),
    )


def _learning(result: xr.Dataset) -> list[Chart]:
    looks = result.isel(round=result.accuracy.notnull().all(["policy", "run"]).values)
    return [
        curves(**look_of("comparison.accuracy"), series=over_policies(looks.accuracy)),
        *parts.regret_charts(result),
        curves(**look_of("comparison.spread"), series=over_policies(looks.accuracy_spread)),
        curves(**look_of("loss"), series=over_policies(looks.loss), late=True),
    ]


def _fairness(result: xr.Dataset, ages: xr.DataArray) -> list[Chart]:
    variance = over_policies(result.cumulative_variance, from_zero=True)
    shares = over_policies(rank_clients(result.participation), "client")
    accuracy = over_policies(rank_clients(_last_look(result)), "client")
    return [
        curves(**look_of("comparison.age"), series=over_policies(ages)),
        curves(**look_of("variance"), series=variance, log=True),
        curves(**look_of("participation"), series=shares),
        curves(**look_of("comparison.clients"), series=accuracy),
    ]


def _last_look(result: xr.Dataset) -> xr.DataArray:
    """Return the accuracy of each client at the last evaluation on the test set."""
    if "client_accuracy" not in result:
        return result["final_client_accuracy"]
    looked = np.flatnonzero(result.accuracy.notnull().all(["policy", "run"]).values)
    return result["client_accuracy"].isel(round=looked[-1] if len(looked) else -1, drop=True)


def _mean_age(result: xr.Dataset) -> xr.DataArray:
    """Return mean ages, averaged over columns of rounds if there are many."""
    from freshband.federated.result import counted_ages

    ages = counted_ages(result).mean("client") if "ages" in result else result.mean_age
    ages = ages.transpose("round", "policy", "run")
    cuts = cut_rounds(ages.sizes["round"])
    coords = {"round": result["round"].values[cuts[1:] - 1], "policy": result.policy.values}
    return xr.DataArray(pool(ages.values, cuts), coords, ages.dims)


def _air(
    result: xr.Dataset,
    settings: dict[str, Any],
    first: dict[str, xr.Dataset],
    freshest: str,
    looks: dict[str, bool],
) -> tuple[list[Chart], list[Table], list[str]]:
    """Return the map of the first run, the changes noticed in all runs, and notes."""
    rounds, runs = result.sizes["round"], [int(run) for run in result.run.values]
    found: dict[str, list[list[float]]] = {name: [] for name in first}
    maps = []
    for run in runs:
        air, notes = parts.air_again(
            lambda: Training.as_stored(settings).build_channels(),
            settings,
            run,
            rounds=rounds,
            views=len(first),
        )
        if air is None:
            return [], [], notes
        if run == runs[0]:
            whole = "assignment" in result  # otherwise the chosen channels are unknown
            plays = {name: play_of(one, looks=looks[name]) for name, one in first.items() if whole}
            start = list(first).index(freshest)
            maps.append(channel_map(air, plays, run=run, start=start))
        if air.means is None:
            return maps, [], notes
        for name, rows in found.items():
            raised = np.flatnonzero(result.alarm.sel(policy=name, run=run).values >= 0) + 1
            rows.append(detection_row(raised, air.breakpoints, looks=looks[name]))
    return maps, [detection_table(found)], notes
