"""Scalars of each round for TensorBoard, written during a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from freshband.errors import FileError, FreshbandError, reason
from freshband.federated.records import RoundRecord
from freshband.parameters import file_path


@contextmanager
def writing_scalars(
    folder: str | os.PathLike[str], *, done: int = 0
) -> Iterator[Callable[[RoundRecord], None]]:
    """Yield a function that writes a round's scalars into a folder for TensorBoard.

    ``done`` rounds were played before; later rounds in the folder, from a killed run, are hidden. A
    folder that cannot be written raises `FileError`.
    """
    target: Path = file_path("folder", folder)
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise FreshbandError(
            "TensorBoard is missing; install it with: pip install 'freshband[train]'"
        ) from None
    make: Any = SummaryWriter
    try:
        writer = make(str(target), purge_step=done + 1)
    except OSError as error:
        raise FileError(f"cannot write {target}: {reason(error)}") from None

    def write(record: RoundRecord) -> None:
        for name, value in scalars_of(record).items():
            writer.add_scalar(name, value, record.round)

    try:
        yield write
    finally:
        writer.close()


def scalars_of(record: RoundRecord) -> dict[str, float]:
    """Return a round's scalars; rounds without an evaluation have no accuracy."""
    scalars = {
        "accuracy": record.accuracy,
        "loss": record.loss,
        "accuracy_spread": record.accuracy_spread,
        "age/mean": record.counted_ages.mean(),
        "age/oldest": record.counted_ages.max(),
        "age/variance": record.variance,
        "round/delivered": record.delivered.sum(),
        "round/refused": record.refused.sum(),
        "round/too_long": 0 if record.too_long is None else record.too_long.sum(),
        "round/trained": record.trained,
        "round/seconds": record.seconds,
    }
    return {name: float(value) for name, value in scalars.items() if value == value}
