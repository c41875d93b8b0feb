"""Small runs in folders, and what makes two of them the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import xarray as xr

from freshband.federated.records import RoundRecord
from freshband.federated.result import load_training
from freshband.federated.runs import Run, resume_run, start_run
from freshband.federated.settings import Training
from tests.federated.killed import final_state, same_bits, same_records

TINY: dict[str, Any] = {
    "model": "mlp",
    "model_options": {"hidden": [8]},
    "clients": 4,
    "rounds": 14,
    "local_steps": 2,
    "batch_size": 8,
    "scheduler": "glr-cucb",
    "seed": 3,
    "path": "threads",
    "workers": 1,
}
PRIORITY = {**TINY, "matching": "priority", "weights": "contribution"}


def tiny(**changes: Any) -> Training:
    return Training(**{**TINY, **changes})


def whole(settings: dict[str, Any], out: Path, every: int = 3) -> Run:
    with start_run(Training(**settings), out, checkpoint_every=every) as run:
        for _ in run:
            pass
    return run


class Left(NamedTuple):
    """What a finished run leaves, but for the time it took."""

    records: list[RoundRecord]
    state: dict[str, Any]
    result: xr.Dataset


def left_by(folder: Path) -> Left:
    run = resume_run(folder)
    assert run.finished
    result = load_training(folder / "result.nc").drop_vars("seconds")
    del result.attrs["seconds"]
    return Left(run.records, final_state(folder), result)


def assert_same_run(one: Path, other: Path | Left) -> None:
    """Every record, parameter and number of the results, bit for bit, but the time they took."""
    found = left_by(one)
    expected = left_by(other) if isinstance(other, Path) else other
    assert same_records(found.records, expected.records)
    assert same_bits(found.state, expected.state)
    assert found.result.identical(expected.result)
