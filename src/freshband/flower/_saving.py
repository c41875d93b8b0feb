"""Checkpoints of a run over Flower: saved after a round, restored into a new ServerApp.

Orders that were on their way when a ServerApp ended are void, because Flower gives the new one
another run: their clients get the newest model. What a checkpoint holds was applied, and nothing is
applied twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from freshband.errors import FileError
from freshband.federated._checkpoint import (
    has_checkpoint,
    load_checkpoint,
    save_checkpoint,
    tensors_of,
)
from freshband.federated._state import NEWER
from freshband.federated.records import _stack_records, _unstack_records
from freshband.federated.uplink import SimulatedUplink
from freshband.flower._rows import StrategyRule
from freshband.flower._wire import Arrays, Update, widened

if TYPE_CHECKING:
    from freshband.flower.server import AsyncRounds

# The server's names of its tensors, and their names in a file.
_NAMES = {"coordinator": "coordinator", "gradients": "valuation.gradients"}
_BY_CLIENT = ("weights", "receivers", "worked", *NEWER)
_NAMES |= {f"arrays.{name}": f"by_client.{name}" for name in _BY_CLIENT}
_VALUED = ("contributions", "errors", "heard", "worth")
_NAMES |= {f"arrays.{name}": f"valuation.{name}" for name in _VALUED}
_MEMORY, _AGGREGATION = "memory.", "aggregation."


def save_run(run: AsyncRounds, folder: Path) -> None:
    """Write everything that is needed to continue."""
    held: Arrays = {f"model.{name}": array for name, array in run.model.items()}
    for version, start in run.starts.items():
        held |= {f"start.{version}.{name}": array for name, array in start.items()}
    for client, update in run.held.items():
        held |= {f"held.{client}.{name}": array for name, array in update.arrays.items()}
    held |= {f"by_client.{name}": getattr(run, name) for name in ("taken", "downloaded")}
    held |= _seen(run)
    held |= {f"records.{name}": values for name, values in _stack_records(run.records).items()}
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in held.items()}
    state = run.server.to_tensors()
    tensors |= {_NAMES[name]: tensor for name, tensor in state.items() if name in _NAMES}
    remembered = tensors_of(state, _MEMORY)
    if isinstance(run.server.algorithm, StrategyRule):
        memory = run.server.algorithm.aggregation.memory()
        remembered = {name: torch.from_numpy(np.array(array)) for name, array in memory.items()}
    tensors |= {_AGGREGATION + name: tensor for name, tensor in remembered.items()}
    facts = {
        "kind": "flower",
        "version": run.server.state.version,
        "scheduler_seconds": run.scheduler_seconds,
        "overdue": sorted(set(run._orders) - set(run.held)),
        "held": {
            str(client): {name: value for name, value in vars(update).items() if name != "arrays"}
            for client, update in run.held.items()
        },
    }
    save_checkpoint(folder, run.round, tensors, facts)


def load_run(run: AsyncRounds, folder: Path) -> bool:
    """Restore what `save_run` wrote into a new run; return whether there was a checkpoint.

    Raises `FileError` if it is damaged or belongs to another problem.
    """
    if not has_checkpoint(folder):
        return False
    found = load_checkpoint(folder)
    try:
        _restore(run, found.tensors, found.facts, found.round)
    except (KeyError, TypeError, ValueError, FileError) as error:
        raise FileError(f"cannot go on from {folder}: {error}") from None
    return True


def _restore(
    run: AsyncRounds, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any], round: int
) -> None:
    if facts.get("kind") != "flower":
        raise ValueError("it is not of a run over Flower")
    model = _like(run.rows.like, tensors, "model.")
    for name, like in run.rows.like.items():
        if name not in model or model[name].shape != like.shape:
            raise ValueError(f"its model has no {name!r} of shape {like.shape}")
        if model[name].dtype != like.dtype:
            raise ValueError(f"its {name!r} is {model[name].dtype}, not {like.dtype}")
    state = {mine: _wide(tensors[name]) for mine, name in _NAMES.items() if name in tensors}
    remembered = tensors_of(tensors, _AGGREGATION)
    state |= {_MEMORY + name: _wide(tensor) for name, tensor in remembered.items()}
    row = run.rows.row(model)
    state |= {"model": row, "models": row.new_zeros(0, len(row))}
    run.rows.rest = model
    run.server.restore(state, round, int(facts["version"]))
    if isinstance(run.server.algorithm, StrategyRule):
        run.server.algorithm.aggregation.restore({n: a.numpy() for n, a in remembered.items()})
    run.scheduler_seconds = [float(seconds) for seconds in facts["scheduler_seconds"]]
    for version in {int(name.split(".")[1]) for name in tensors if name.startswith("start.")}:
        run.starts[version] = _like(run.rows.like, tensors, f"start.{version}.")
    for client, about in facts["held"].items():
        arrays = _like(run.rows.like, tensors, f"held.{client}.")
        run.held[int(client)] = Update(arrays=arrays, **about)
    for name in ("taken", "downloaded"):
        setattr(run, name, tensors[f"by_client.{name}"].numpy())
    for name, seen in _seen(run).items():
        seen[:] = tensors[name].numpy()
    for client in facts["overdue"]:
        run.server.release(client)
    records = {n: tensor.numpy() for n, tensor in tensors_of(tensors, "records.").items()}
    run.records = _unstack_records(records, round)


def _seen(run: AsyncRounds) -> Arrays:
    """Return what simulated air remembers, as views."""
    return dict(run.uplink.memory()) if isinstance(run.uplink, SimulatedUplink) else {}


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(widened(tensor.numpy()))


def _like(model: Arrays, tensors: Mapping[str, torch.Tensor], prefix: str) -> Arrays:
    """Return a model in the order of another: files do not keep the order of names."""
    found = tensors_of(tensors, prefix)
    return {name: found[name].numpy() for name in model if name in found}
