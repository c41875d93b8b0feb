"""What a simulation's file has to show."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import xarray as xr

from freshband.channels.base import build
from freshband.locating import find_again
from freshband.reporting.page.air import channel_map, detection_table
from freshband.reporting.page.charts import Chart, curves
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
from freshband.simulation.result import mask_detections, mean_and_error, read_config

__all__ = ["show_simulation"]

_TOLD: Final = {
    "regret": "regret",
    "regret_rotate": "regret, rotating oracle",
    "regret_fixed": "regret, best fixed set",
    "mean_age": "mean age",
    "max_age": "oldest",
    "cumulative_variance": "cumulative variance",
    "jain": "Jain index",
    "alarms": "alarms",
}
_SUMS: Final = (
    "A simulation keeps sums, not rounds: which channels were chosen, each client's age and "
    "contributions are in the files of freshband train and freshband compare."
)


def show_simulation(result: xr.Dataset, path: Path, title: str) -> Part:
    """Return the part of the page on a simulation."""
    config = read_config(result)
    runs, clients = config["runs"], config["clients"]
    air, why = air_again(
        lambda: build(
            config["channels"], find_again(config.get("channel_options", {}), path.parent)[0]
        ),
        config["rounds"],
        config["seed"],
        int(result.run.values[0]),
        rounds=config["rounds"],
    )
    charts = _curves(result, clients)
    if "participation" in result:
        charts.append(_participation(result))
    if air is not None:
        charts.append(channel_map(air, {}, run=int(result.run.values[0])))
    masked = mask_detections(result, config.get("policy_options", {}))
    true = result.detected + result.missed
    rows = {
        str(name): [
            _mean(true.sel(policy=name)),
            *(_mean(masked[measure].sel(policy=name)) for measure in _FOUND),
        ]
        for name in result.policy.values
    }
    known = bool(result.detected.notnull().any())
    several = f"{runs} runs" if runs > 1 else "1 run"
    return Part(
        kind="Simulation",
        title=title,
        about=f"{config['channels']}: {clients} clients, {config['rounds']:,} rounds, {several}, "
        f"seed {config['seed']}",
        summary=measure_table("Policies at a glance: mean ± standard error", masked, _TOLD),
        charts=charts,
        tables=[detection_table(rows)] if known else [],
        notes=[
            *([] if why is None else [why]),
            *same_air_note(result, "a policy's own random choices, and 0 where it makes none"),
            *_missing(result),
            _SUMS,
        ],
        settings=settings_table(config),
        environment=surroundings(result, path),
        repeat=repeat_with("simulate", path, result),
    )


_FOUND: Final = ("detected", "missed", "false_alarms", "delay")


def _mean(values: xr.DataArray) -> float:
    found = mean_and_error(values.values)
    return np.nan if found is None or found["mean"] is None else found["mean"]


def _missing(result: xr.Dataset) -> list[str]:
    """Say what the file of a simulation has when it is not all there."""
    if result.sizes["round"] > 1 and "age_curve" in result and "participation" in result:
        return []
    held = "totals and some curves" if result.sizes["round"] > 1 else "totals only"
    return [
        f"This file keeps {held}, as freshband reproduce and --points 1 have it: the command "
        "below, with --points 200, computes the rest again."
    ]


def _curves(result: xr.Dataset, clients: int) -> list[Chart]:
    """Return the curves the file holds; one of a single point would say nothing."""
    if result.sizes["round"] < 2:
        return []
    known = bool(result.regret.notnull().any())
    measure, oracle = (
        ("regret_curve", "the mean+age oracle")
        if known
        else ("regret_fixed_curve", "the best fixed set")
    )
    charts = []
    if measure in result:
        charts.append(
            curves(
                "regret",
                "AoI regret",
                f"How much age all clients piled up beyond {oracle} on the same air; lower is "
                "better, and a curve that flattens has learned.",
                over_policies(result[measure], from_zero=True),
                y_title="cumulative regret",
                log=True,
            )
        )
    if "age_curve" in result:
        widths = result["round"].diff("round")
        recent = result.age_curve.diff("round") / (widths * clients)
        charts.append(
            curves(
                "age",
                "Age of the updates",
                "The mean age of a client's last delivered update, in rounds, between one point "
                "and the next; 1 would be an update from everybody in every round.",
                over_policies(recent.transpose("policy", "run", "round")),
                y_title="mean age",
            )
        )
    if "variance_curve" in result:
        charts.append(
            curves(
                "variance",
                "Fairness over time",
                "The variance of ages over clients, summed over rounds; a flat curve means that "
                "nobody is left waiting longer than the others.",
                over_policies(result.variance_curve, from_zero=True),
                y_title="cumulative AoI variance",
                log=True,
            )
        )
    return charts


def _participation(result: xr.Dataset) -> Chart:
    ranked = result.participation.transpose("policy", "run", "client")
    ranked = ranked.copy(data=np.sort(ranked.values, axis=-1))
    ranked = ranked.assign_coords(client=np.arange(1, ranked.sizes["client"] + 1))
    return curves(
        "participation",
        "Participation",
        "The share of rounds in which a client got through, the one worst off in each run first; "
        "a level line is fair.",
        over_policies(ranked, "client"),
        x_title="client, worst off first",
        y_title="share of rounds",
        percent=True,
        markers=True,
    )
