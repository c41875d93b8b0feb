"""Result files made by hand, so that reports can be tested without training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

import freshband
from freshband._sealed import save_sealed
from freshband.federated.records import RoundRecord
from freshband.federated.result import collect_records
from freshband.federated.settings import Training
from tests.federated.recording import ACCURACY, make_record

POLICIES = ["random", "cucb", "glr-cucb"]
NASTY = ['<script>alert("ran")</script>', '"><img src=x onerror=alert(1)>', "@series-0 & </script>"]
SETTINGS = Training(clients=3, rounds=4, scheduler="glr-cucb", matching="age", device="cpu")


def make_training(settings: Training = SETTINGS, **changes: Any) -> xr.Dataset:
    """One run of four rounds with contributions; an alarm of channel 3 in round 2."""
    return collect_records(_records(**changes), settings)


def make_long_training(rounds: int, clients: int) -> xr.Dataset:
    """One run with many rounds and clients."""
    settings = Training(clients=clients, rounds=rounds, device="cpu")
    channels = settings.build_channels().n_channels
    rng = np.random.default_rng(0)
    plain = {"client_accuracy", "weights", "steps", "contributions", "errors", "priorities"}
    records = []
    for t in range(1, rounds + 1):
        known = {name: rng.random(clients) for name in plain}
        known["ages"] = rng.integers(1, 9, clients)
        known["delivered"] = known["ages"] == 1
        known["refused"] = np.zeros(clients, bool)
        known["staleness"] = known["ages"] - 2
        known["assignment"] = rng.permutation(channels)[:clients]
        known["channel_means"] = rng.random(channels)
        one = {"round": t, "accuracy": rng.random(), "loss": rng.random(), "alarm": t % channels}
        records.append(RoundRecord(**{**vars(make_record(1)), **known, **one}))
    return collect_records(records, settings)


def make_comparison(names: list[str] = POLICIES, runs: int = 2) -> xr.Dataset:
    """Policies and runs that differ by known amounts of accuracy."""
    rows = []
    for place, _ in enumerate(names):
        shifts = [0.01 * place + 0.02 * run for run in range(runs)]
        row = [collect_records(_records(shift), SETTINGS) for shift in shifts]
        rows.append(xr.concat(row, "run", combine_attrs="drop"))
    both = xr.concat(rows, "policy", combine_attrs="drop")
    both = both.assign_coords(policy=names, run=np.arange(runs))
    regret = both.ages.sum("client").cumsum("round") * (1.0 + both.run)
    config = {
        "settings": SETTINGS.model_dump(mode="json"),
        "policies": names,
        "policy_options": {},
        "runs": runs,
    }
    return both.assign(regret=regret, regret_fixed=regret * np.nan).assign_attrs(
        format="freshband comparison 1",
        config=json.dumps(config),
        freshband="0.0.0",
        versions=json.dumps({"python": "3.11.0"}),
        device="cpu",
        seconds=1.5,
    )


def make_simulation(names: list[str] | None = None, **asked: Any) -> xr.Dataset:
    """Three policies over changing air, under other names if there are any."""
    sized = {"rounds": 300, "runs": 3, "clients": 2, "progress": False, **asked}
    result = freshband.simulate("piecewise", POLICIES, **sized)
    if names is not None:
        config = {**json.loads(result.attrs["config"]), "policies": names}
        result = result.assign_coords(policy=names).assign_attrs(config=json.dumps(config))
    return result


def fill(folder: Path) -> Path:
    """Write one result of each kind, as a user's folder has them; return the folder."""
    (folder / "run").mkdir(parents=True)
    save_sealed(make_training(), folder / "run" / "result.nc")
    save_sealed(make_comparison(), folder / "policies.nc")
    save_sealed(make_simulation(), folder / "air.nc")
    return folder


def _records(shift: float = 0.0, **changes: Any) -> list[RoundRecord]:
    valued = {"contributions": np.array([0.2, 0.0, 0.5]), **changes}
    return [make_record(t, accuracy=ACCURACY[t - 1] + shift, **valued) for t in range(1, 5)]
