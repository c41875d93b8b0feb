"""The fleet of a run: how it is described, and how many clients were there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from freshband.fleet.conditions import SimulatedFleet, open_conditions
from freshband.reporting._air import MOST_DRAWN

_LISTED: Final = 6  # longest list that is shown in full
_BLOCK: Final = 4096  # rounds that are drawn at a time, so that memory stays small


def fleet_of(config: Mapping[str, Any]) -> SimulatedFleet:
    """Return the fleet of a configuration; that of the paper's problem has no settings."""
    return SimulatedFleet.as_stored(config.get("fleet", {}))


def describe_fleet(config: Mapping[str, Any]) -> str:
    """Return the settings of a fleet in one line, empty for the paper's problem.

    Examples
    --------
    >>> describe_fleet({"fleet": {"ack_delay": 5, "silence": "loss", "weights": [1.0] * 200}})
    'ack_delay=5, silence=loss, weights=[1, 1, 1, …]'
    """
    return ", ".join(f"{name}={_told(value)}" for name, value in config.get("fleet", {}).items())


def end_with_fleet(config: Mapping[str, Any]) -> str:
    """Return the end of a line that describes a run: ``; fleet: …``, or nothing."""
    fleet = describe_fleet(config)
    return f"; fleet: {fleet}" if fleet else ""


def _told(value: Any) -> str:
    if isinstance(value, list):
        told = [_told(each) for each in value[:_LISTED]]
        return f"[{', '.join([*told[:3], '…'] if len(value) > _LISTED else told)}]"
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)


def weigh_presence(
    config: Mapping[str, Any], ends: NDArray[np.int64], runs: NDArray[np.int64]
) -> xr.DataArray | None:
    """Return the sum of weights over the clients that were there and the rounds up to ``ends``.

    The dimensions are run and round. Without churn, every run is the same. None means that there
    are too many clients and rounds to draw again who was there.
    """
    fleet, clients = fleet_of(config), int(config["clients"])
    weights = np.array(fleet.weights or [1.0] * clients)
    if fleet.churn is None:
        weights[list(fleet.dead)] = 0.0
        sums = np.tile(weights.sum() * ends, (len(runs), 1))
    elif int(ends[-1]) * clients * len(runs) > MOST_DRAWN:
        return None
    else:
        sums = np.array([_weigh_run(fleet, weights, config["seed"], run, ends) for run in runs])
    return xr.DataArray(sums, {"run": runs, "round": ends}, ("run", "round"))


def _weigh_run(
    fleet: SimulatedFleet, weights: NDArray[Any], seed: int, run: int, ends: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Draw again who was there in one run; channels are drawn apart, so one is enough."""
    stream = open_conditions(fleet, len(weights), 1, seed, int(run))
    last = int(ends[-1])
    sizes = (min(_BLOCK, last - t) for t in range(0, last, _BLOCK))
    here = [stream.block(size).present @ weights for size in sizes]
    sums: NDArray[np.float64] = np.cumsum(np.concatenate(here))[ends - 1]
    return sums
