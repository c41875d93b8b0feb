"""What a scheduler that explains itself believed in one run, beside the truth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from freshband._policy import parse_policy
from freshband.channels.base import ChannelModel, links_differ
from freshband.errors import FreshbandError
from freshband.reporting._air import Air
from freshband.reporting._fleet import fleet_of
from freshband.reporting._page.air import beliefs_map
from freshband.reporting._page.charts import Chart, curves, look_of
from freshband.reporting._series import Series
from freshband.schedulers.beliefs import Beliefs
from freshband.simulation._players import Game
from freshband.simulation.replaying import replay_beliefs

_PLAYED = 2_000_000  # most rounds that are played again


def beliefs_charts(
    result: xr.Dataset, config: Mapping[str, Any], model: ChannelModel, air: Air, run: int
) -> list[Chart]:
    """Return pictures of the first policy that explains itself; none where links differ."""
    rounds = int(air.cuts[-1])
    if rounds > _PLAYED or links_differ(model):
        return []
    game = Game(
        model, fleet_of(config), config["clients"], config["rounds"], config["seed"], run,
        np.array([config["rounds"]]),
    )  # fmt: skip
    options = config.get("policy_options", {})
    for name in map(str, result.policy.values):
        try:
            believed = replay_beliefs(parse_policy(name, options.get(name)), game, air.cuts)
        except FreshbandError:  # a policy that is not known here
            continue
        if believed:
            return [beliefs_map(air, believed, name, run), _models(air, believed, name)]
    return []


def _models(air: Air, believed: list[Beliefs], policy: str) -> Chart:
    """Return the probability of each model over the rounds."""
    models = {
        name: Series(air.cuts[1:], np.array([[each.models[name] for each in believed]]))
        for name in believed[0].models
    }
    look = look_of("models")
    look["says"] = look["says"].format(policy=policy, hazard=f"{believed[-1].hazard:.2g}")
    return curves(**look, series=models)
