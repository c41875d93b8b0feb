"""The part of the page on a simulation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import xarray as xr

from freshband._locating import find_again
from freshband.channels.base import build
from freshband.reporting._fleet import end_with_fleet, fleet_of, weigh_presence
from freshband.reporting._numbers import counted
from freshband.reporting._page import parts
from freshband.reporting._page.air import channel_map, detection_table
from freshband.reporting._page.beliefs import beliefs_charts
from freshband.reporting._page.charts import Chart, curves, look_of
from freshband.reporting._series import over_policies, rank_clients
from freshband.simulation.result import _mask_detections, _read_config

_FOUND: Final = ("detected", "missed", "false_alarms", "delay")
_SUMS: Final = (
    "A simulation stores sums, not rounds: the chosen channels, each client's age and "
    "contributions are in the files of freshband train and freshband compare."
)


def show_simulation(result: xr.Dataset, path: Path, title: str) -> parts.Part:
    """Return the part of the page on a simulation."""
    config = _read_config(result)
    clients, rounds, first = config["clients"], config["rounds"], int(result.run.values[0])
    options = find_again(config.get("channel_options", {}), path.parent)[0]
    air, notes = parts.air_again(
        lambda: build(config["channels"], options), config, first, rounds=rounds
    )
    present = weigh_presence(config, result["round"].values, result.run.values)
    if present is None:
        notes.append("The age of the updates is left out: drawing who was there takes too long.")
    charts = _curves(result, present)
    if "participation" in result:
        ranked = over_policies(rank_clients(result.participation), "client")
        charts.append(curves(**look_of("participation"), series=ranked))
    if air is not None:
        charts.append(channel_map(air, {}, run=first))
        charts += beliefs_charts(result, config, build(config["channels"], options), air, first)
    masked = _mask_detections(result, config)
    true = result.detected + result.missed
    counts = xr.concat([true, *(masked[name] for name in _FOUND)], "measure")
    rows = {
        str(name): counts.sel(policy=name).transpose("run", "measure").values
        for name in result.policy.values
    }
    rest = "a policy's own random choices, and 0 where it makes none"
    return parts.Part(
        kind="Simulation",
        title=title,
        about=f"{config['channels']}: {clients} clients, {rounds:,} rounds, "
        f"{counted(config['runs'], 'run')}, seed {config['seed']}" + end_with_fleet(config),
        summary=parts.measure_table(masked, parts.AGE_MEASURES),
        charts=charts,
        tables=[detection_table(rows)] if bool(result.detected.notnull().any()) else [],
        notes=[
            *notes,
            *parts.same_air_note(result, rest),
            *_fleet_notes(config),
            *_missing(result),
            _SUMS,
        ],
        settings=parts.settings_table(config),
        environment=parts.surroundings(result, path),
        repeat=parts.repeat_with("simulate", path, result),
    )


def _missing(result: xr.Dataset) -> list[str]:
    """Return a note on the contents of a file that does not hold everything."""
    if result.sizes["round"] > 1 and "age_curve" in result and "participation" in result:
        return []
    held = "totals and some curves" if result.sizes["round"] > 1 else "totals only"
    return [
        f"This file holds {held}, as files of freshband reproduce and of --points 1 do: the "
        "command below, with --points 200, computes the rest again."
    ]


def _fleet_notes(config: Mapping[str, Any]) -> list[str]:
    """Return notes on how a fleet changes the meaning of the numbers."""
    fleet, notes = fleet_of(config), []
    if fleet.weights is not None:
        notes.append("Ages and regret are weighted by client.")
    if fleet.churn is not None or fleet.dead:
        notes.append(
            "Ages count only the clients that are there, from their return on; the share of rounds "
            "in which a client got through is that of all rounds."
        )
    if not fleet.is_plain:
        notes.append(
            "Regret is measured against an oracle that learns at once who is there and what was "
            "delivered."
        )
    return notes


def _curves(result: xr.Dataset, present: xr.DataArray | None) -> list[Chart]:
    """Return the curves of the file; those of a single point are left out."""
    if result.sizes["round"] < 2:
        return []
    charts = parts.regret_charts(result, "_curve")
    if "age_curve" in result and present is not None:
        recent = result.age_curve.diff("round") / present.diff("round")
        charts.append(curves(**look_of("simulation.age"), series=over_policies(recent)))
    if "variance_curve" in result:
        variance = over_policies(result.variance_curve, from_zero=True)
        charts.append(curves(**look_of("variance"), series=variance, log=True))
    return charts
