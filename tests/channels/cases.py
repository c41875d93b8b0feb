"""Every registered channel model with parameters that reach all of its code.

One that is not listed is tried with its defaults.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from freshband.channels import registry

DATA = Path(__file__).parent / "data"

_LISTED: dict[str, list[dict[str, Any]]] = {
    "stationary": [
        {},
        {"means": [0.0, 0.3, 1.0]},
        {"per_client": True},
        {"per_client": True, "means": [[0.0, 0.3], [1.0, 0.6]]},
        {"per_client": True, "p_differ": 0.3},
        {"per_client": True, "offset_sd": 2.0, "mean_low": 0.0, "mean_high": 1.0},
    ],
    "piecewise": [
        {},
        {"n_breakpoints": 15, "p_change": 0.3},
        {"n_segments": 4, "spacing": "random", "min_gap": 3},
        {"means": [[0.1, 0.9], [0.9, 0.9], [0.9, 0.1]], "breakpoints": [2, 20]},
        {"per_client": True, "n_breakpoints": 15, "p_change": 0.3, "p_differ": 0.3},
        {"per_client": True, "offset_sd": 1.0},
        {"per_client": True, "means": [[[0.1, 0.9], [0.4, 0.9]], [[0.1, 0.9], [0.5, 0.9]]]},
    ],
    "switching": [
        {},
        {"hazard": 0.2, "p_change": 0.3},
        {"hazard": 0.05, "per_channel": True},
        {"hazard": 1.0, "n_channels": 1},
        {"hazard": 0.05, "per_channel": True, "per_client": True},
        {"hazard": 0.2, "per_client": True, "p_differ": 0.5},
        {"hazard": 0.02, "per_client": True, "offset_sd": 2.0},
    ],
    "jammer": [
        {},
        {"pattern": "random", "width": 2, "dwell": 1},
        {"pattern": "random", "oblivious": False, "means": [0.5, 0.0, 1.0]},
        {"pattern": "block", "budget": 0.3},
        {"dwell": 5000, "budget": 1.0},
    ],
    "drifting": [
        {},
        {"pattern": "walk", "step": 0.2},
        {"mean_low": 0.5, "mean_high": 0.5, "pattern": "walk"},
    ],
    "periodic": [{}, {"means": [1, 0.5], "width": 1, "period": 7, "blocked": 3}],
    "gilbert-elliott": [
        {},
        {"dwell": 1, "means": [0.5]},
        {"p_bad": 0.9, "p_good": [0.8, 0.05]},
        {"good_success": 0.95, "bad_success": 0.02},
    ],
    "table": [
        {"states": [[1, 0, 1], [0, 1, 1], [0, 0, 0]], "wrap": True},
        {"means": np.linspace(0, 1, 20_000).reshape(-1, 2)},
        {"means": np.linspace(0, 1, 20_000).reshape(-1, 2), "offset": "random"},
        {"means": np.linspace(0, 1, 60_000).reshape(-1, 2, 3), "per_client": True},
        {"states": [[[1, 0], [0, 1]], [[1, 1], [0, 0]]], "per_client": True, "wrap": True},
    ],
    "trace": [
        {"path": DATA / "states.csv", "wrap": True},
        {"path": DATA / "ratios.csv", "rounds_per_row": 7, "wrap": True},
        {"path": DATA / "ratios.csv", "rounds_per_row": 7, "wrap": True, "offset": "random"},
        {"path": DATA / "quality.csv", "columns": "gw*", "threshold": -100.0, "wrap": True},
        {"path": DATA / "links.csv", "per_client": True, "rounds_per_row": 7, "wrap": True},
        {"path": DATA / "links.csv", "per_client": True, "wrap": True, "shuffle": True},
    ],
    "reactive": [{}, {"means": [0.9, 0.5, 0.2], "width": 2, "window": 9}],
    "besson-random": [{"min_gap": 2}],
    "hard-stationary": [{}, {"n_channels": 3, "n_clients": 3}],
}
CASES = {
    name: _LISTED.get(name, [{}])
    for name in registry
    if registry[name].__module__.startswith("freshband.")  # whatever other tests have added
}

FLAT = [(name, params) for name, several in CASES.items() for params in several]
IDS = [f"{name}-{i}" for name, several in CASES.items() for i in range(len(several))]
