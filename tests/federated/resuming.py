"""Small runs in folders, and what makes two of them the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


def assert_same_run(one: Path, other: Path) -> None:
    """Every record, parameter and number of the results, bit for bit, but the time they took."""
    first, second = resume_run(one), resume_run(other)
    assert first.finished
    assert second.finished
    assert same_records(first.records, second.records)
    assert same_bits(final_state(one), final_state(other))
    results = [load_training(folder / "result.nc").drop_vars("seconds") for folder in (one, other)]
    for result in results:
        del result.attrs["seconds"]
    assert results[0].identical(results[1])
