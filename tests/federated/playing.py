"""Tiny federations, and how their records compare."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from freshband.federated import Federation, RoundRecord, Training
from freshband.federated.clients._base import ParameterLayout

TINY = {
    "dataset": "synthetic",
    "dataset_options": {"shape": (1, 4, 4), "n_classes": 3, "n_train": 150, "n_test": 50},
    "model": "mlp",
    "model_options": {"hidden": [5]},
    "partition_options": {"alpha": 1.0},
    "val_fraction": 0.3,
    "channels": "stationary",
    "channel_options": {"means": [0.9, 0.6, 0.5, 0.4, 0.3, 0.2]},
    "scheduler": "cucb",
    "clients": 4,
    "rounds": 12,
    "seed": 3,
    "local_steps": 2,
    "batch_size": 4,
    "client_lr": 0.3,
    "length_limit": 0,  # so few samples, so small batches: honest lengths differ by tens of times
    "precision": "float64",
    "workers": 1,
}
PERFECT = {"channel_options": {"means": [1.0] * 5}}
DEAD = {"channel_options": {"means": [0.0] * 5}}

# Every algorithm and every way to value clients, for what must hold of all of them.
KINDS: dict[str, dict[str, Any]] = {
    "async": {},
    "priority": {"matching": "priority", "weights": "contribution"},
    "fedce": {"matching": "priority", "weights": "contribution", "contribution": "fedce"},
    "buffer": {"matching": "priority", "loo": "buffer"},
    "fedasync": {"algorithm": "fedasync"},
    "fedasync, valued": {"algorithm": "fedasync", "contribution": "paper"},
    "fedbuff": {"algorithm": "fedbuff", "buffer_size": 3},
    "fedavg": {"algorithm": "fedavg"},
}

every_kind = pytest.mark.parametrize("kind", KINDS)
every_path = pytest.mark.parametrize("path", ["threads", "stacked"])


def tiny(**changes: Any) -> Training:
    return Training(**{**TINY, **changes})


def play(settings: Training, **objects: Any) -> tuple[list[RoundRecord], torch.Tensor]:
    """Return all records and the last model."""
    with Federation(settings, **objects) as run:
        return list(run), run.state.model.clone()


def named(run: Federation, row: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return a row of parameters by name."""
    return ParameterLayout(run.module()).views(row)


def assert_identical(a: list[RoundRecord], b: list[RoundRecord]) -> None:
    assert len(a) == len(b)
    for one, other in zip(a, b, strict=True):
        assert one.same_as(other), f"round {one.round}"


def assert_close(record: RoundRecord, expected: Any, tolerance: float = 1e-10) -> None:
    """Hold a record against one with the same names, counts exactly."""
    for name in vars(expected):
        if name in ("seconds", "alarm"):
            continue
        found, wanted = np.asarray(getattr(record, name)), np.asarray(getattr(expected, name))
        if found.dtype.kind == "f":
            np.testing.assert_allclose(
                found, wanted, rtol=tolerance, atol=tolerance, err_msg=f"{name} of {record.round}"
            )
        else:
            np.testing.assert_array_equal(found, wanted, err_msg=f"{name} of {record.round}")
