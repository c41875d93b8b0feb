"""Processes that train and are killed: at a round, in the middle of one, or while they write."""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import torch

from freshband.federated._checkpoint import load_checkpoint
from freshband.federated.records import RoundRecord
from freshband.federated.runs import resume_run, start_run
from freshband.federated.settings import Training

Kill = tuple[str, int]  # ("round", 5): after that round; ("train", 5): in it; ("write", 5): at the
# fifth step of writing: opening, forcing to disk or renaming a file

_processes = multiprocessing.get_context("forkserver")  # clean and new, but imports are done
_processes.set_forkserver_preload(
    [
        "freshband.federated.runs",
        "freshband.federated.clients._batched",
        "freshband.federated.clients._threads",
        "h5netcdf",
        "numba.np.random.legacy",
        "sklearn.datasets",
        "tests.federated.warmed",
    ]
)


def play(settings: dict[str, Any], out: str, kill: Kill | None, every: int) -> None:
    """Start or resume the run in a folder, and play it until killed."""
    torch.set_num_threads(1)
    kind, place = kill or ("", 0)
    if kind == "write":
        _die_writing(place)
    if (Path(out) / "run.json").exists():
        run = resume_run(out)
    else:
        run = start_run(Training(**settings), out, checkpoint_every=every)
    if kind == "train":
        _die_training(run.federation, place)
    for record in run:
        if kind == "round" and record.round == place:
            _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _die_writing(place: int) -> None:
    left = [place]

    def counted(action: Any) -> Any:
        def act(*args: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                _die()
            return action(*args, **options)

        return act

    os.fsync, Path.replace = counted(os.fsync), counted(Path.replace)  # type: ignore[method-assign]
    Path.unlink = counted(Path.unlink)  # type: ignore[method-assign]


def _die_training(federation: Any, place: int) -> None:
    train = federation.clients.train

    def act(*args: Any) -> None:
        train(*args)
        if federation.round + 1 == place:
            _die()

    federation.clients.train = act


def play_killed(settings: dict[str, Any], out: Path, kill: Kill | None, every: int) -> bool:
    """Play in a new process; return whether it was killed."""
    process = _processes.Process(target=play, args=(settings, str(out), kill, every))
    process.start()
    process.join(240)
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


def final_state(out: Path) -> dict[str, Any]:
    """Return every array of the newest checkpoint but the times, with the coordinator unpacked."""
    held: dict[str, Any] = {}
    for name, tensor in load_checkpoint(out / "checkpoints").tensors.items():
        if name == "federation.coordinator":  # an archive, which notes when it was packed
            with np.load(io.BytesIO(tensor.numpy().tobytes()), allow_pickle=False) as archive:
                held |= {f"{name}.{part}": archive[part] for part in archive.files}
        elif name != "records.seconds":
            held[name] = tensor.numpy()
    return held


def same_bits(first: dict[str, Any], other: dict[str, Any]) -> bool:
    return first.keys() == other.keys() and all(
        first[name].dtype == other[name].dtype
        and first[name].shape == other[name].shape
        and first[name].tobytes() == other[name].tobytes()
        for name in first
    )


def same_records(first: list[RoundRecord], other: list[RoundRecord]) -> bool:
    return len(first) == len(other) and all(
        one.same_as(two) for one, two in zip(first, other, strict=True)
    )
