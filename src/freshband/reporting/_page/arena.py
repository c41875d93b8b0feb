"""The part of the page on a contest in the arena."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import xarray as xr

from freshband.arena.result import read_config
from freshband.reporting import arena as tables
from freshband.reporting._numbers import counted
from freshband.reporting._page import parts
from freshband.reporting._page.charts import Chart, curves, look_of
from freshband.reporting._series import Series

_ROUNDED: Final = (
    "A policy wins a family against another if the paired 95 % interval of the difference of their "
    "mean ages excludes 0. Ranks are by mean age; policies that were not run share the last ranks."
)


def show_arena(result: xr.Dataset, path: Path, title: str) -> parts.Part:
    """Return the part of the page on a contest."""
    config = read_config(result)
    shown = [chart for measure in ("regret", "age") for chart in _chart(result, measure)]
    settings = {name: config[name] for name in ("seed", "full", "limit", "policies")}
    return parts.Part(
        kind="Arena",
        title=title,
        about=f"{counted(result.sizes['policy'], 'policy')} on "
        f"{counted(result.sizes['family'], 'family')}, seed {config['seed']}",
        summary=tables.ranking(result),
        charts=shown,
        tables=[tables.families(result), tables.ages(result), tables.wins(result)],
        notes=[_ROUNDED],
        settings=parts.settings_table({**settings, "families": config["families"]}),
        environment=parts.surroundings(result, path),
    )


def _chart(result: xr.Dataset, measure: str) -> list[Chart]:
    """Return the curves of all families, of which a menu shows one at a time."""
    known = result[f"{measure}_curve"].notnull().any(("policy", "point"))
    found = []
    for place, name in enumerate(map(str, result.family.values[known.values])):
        part = result.sel(family=name)
        x = part["round"].values
        series = {
            str(policy): Series(x, part[f"{measure}_curve"].sel(policy=policy).values[None])
            for policy in result.policy.values
        }
        chart = curves(**look_of(f"arena.{measure}"), series=series)
        for trace in chart.traces:
            trace.meta = {**trace.meta, "view": str(place)}
        found.append((name, chart))
    if not found:
        return []
    return [
        replace(
            found[0][1],
            traces=[trace for _, chart in found for trace in chart.traces],
            views=tuple(name for name, _ in found) if len(found) > 1 else (),
            choose="Family",
            log=False,
        )
    ]
