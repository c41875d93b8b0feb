"""A run over Flower on disk: saved after a round, restored into a ServerApp started anew.

Orders that were on their way when a ServerApp ended are void with it: Flower gives the new one
another run. Their clients get the newest model; what a checkpoint holds was applied, and nothing
is applied twice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from freshband.coordinator import Coordinator
from freshband.errors import FileError
from freshband.federated.checkpoint import has_checkpoint, load_checkpoint, save_checkpoint
from freshband.federated.records import RoundRecord
from freshband.flower.wire import Arrays, Update

if TYPE_CHECKING:
    from freshband.flower.server import AsyncRounds

__all__ = ["load_run", "save_run"]

_BY_CLIENT = ("weights", "receivers", "taken", "downloaded")


def save_run(run: AsyncRounds, folder: Path) -> None:
    """Write everything needed to go on."""
    held: Arrays = {f"model.{name}": array for name, array in run.model.items()}
    for version, start in run.starts.items():
        held |= {f"start.{version}.{name}": array for name, array in start.items()}
    for client, update in run.held.items():
        held |= {f"held.{client}.{name}": array for name, array in update.arrays.items()}
    held |= {f"aggregation.{n}": array for n, array in run.aggregation.memory().items()}
    if run.valuation is not None:
        held |= {f"valuation.{n}": array for n, array in run.valuation.memory().items()}
    held |= {f"by_client.{name}": getattr(run, name) for name in _BY_CLIENT}
    for field in dataclasses.fields(RoundRecord):
        stacked = np.stack([getattr(record, field.name) for record in run.records])
        held[f"records.{field.name}"] = stacked
    held["coordinator"] = np.frombuffer(run.coordinator.to_bytes(), np.uint8)
    facts = {
        "kind": "flower",
        "version": run.version,
        "scheduler_seconds": run.scheduler_seconds,
        "overdue": sorted(run._orders),
        "held": {
            str(client): {
                "order": update.order,
                "version": update.version,
                "metrics": update.metrics,
                "error": update.error,
                "problem": update.problem,
            }
            for client, update in run.held.items()
        },
    }
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in held.items()}
    save_checkpoint(folder, run.round, tensors, facts)


def load_run(run: AsyncRounds, folder: Path) -> bool:
    """Restore what `save_run` wrote into a fresh run; return whether there was anything.

    Raises
    ------
    FileError
        If the checkpoint is damaged or of another problem.
    """
    if not has_checkpoint(folder):
        return False
    found = load_checkpoint(folder)
    arrays = {name: tensor.numpy() for name, tensor in found.tensors.items()}
    try:
        _restore(run, arrays, found.facts)
    except (KeyError, TypeError, ValueError, FileError) as error:
        raise FileError(f"cannot go on from {folder}: {error}") from None
    return True


def _restore(run: AsyncRounds, arrays: Arrays, facts: Mapping[str, Any]) -> None:
    saved = Coordinator.from_bytes(arrays["coordinator"].tobytes(), "its coordinator")
    mine = run.coordinator
    if facts.get("kind") != "flower":
        raise ValueError("it is not of a run over Flower")
    for name in ("n_clients", "n_channels", "seed", "run", "horizon"):
        if getattr(saved, name) != getattr(mine, name):
            raise ValueError(f"{saved!r} has another {name}")
    if saved.policy.name != mine.policy.name:
        raise ValueError(f"{saved!r} is of another policy than {mine.policy.name!r}")
    model = _of(arrays, "model.")
    for name, array in run.model.items():
        if name not in model or model[name].shape != array.shape:
            raise ValueError(f"its model has no {name!r} of shape {array.shape}")
        if model[name].dtype != array.dtype:
            raise ValueError(f"its {name!r} is {model[name].dtype}, not {array.dtype}")
    run.coordinator = saved
    run.model = {name: model[name] for name in run.model}
    run.version = int(facts["version"])
    run.scheduler_seconds = [float(seconds) for seconds in facts["scheduler_seconds"]]
    versions = {int(name.split(".")[1]) for name in arrays if name.startswith("start.")}
    run.starts = {version: _like(run.model, arrays, f"start.{version}.") for version in versions}
    run.held = {
        int(client): Update(arrays=_like(run.model, arrays, f"held.{client}."), **about)
        for client, about in facts["held"].items()
    }
    run.aggregation.restore(_of(arrays, "aggregation."))
    if run.valuation is not None:
        run.valuation.restore(_of(arrays, "valuation."))
    for name in _BY_CLIENT:
        setattr(run, name, arrays[f"by_client.{name}"])
    run.receivers[list(facts["overdue"])] = True
    run.records = _records(_of(arrays, "records."))


def _of(arrays: Arrays, prefix: str) -> Arrays:
    size = len(prefix)
    return {name[size:]: array for name, array in arrays.items() if name.startswith(prefix)}


def _like(model: Arrays, arrays: Arrays, prefix: str) -> Arrays:
    """Return a model in the order of another: files keep names, not their order."""
    found = _of(arrays, prefix)
    return {name: found[name] for name in model if name in found}


def _records(fields: Arrays) -> list[RoundRecord]:
    return [
        RoundRecord(
            **{
                name: values[at].item() if values.ndim == 1 else values[at].copy()
                for name, values in fields.items()
            }
        )
        for at in range(len(fields["round"]))
    ]
