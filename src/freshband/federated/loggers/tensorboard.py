"""Scalars of each round for TensorBoard."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, final

from freshband.errors import ParameterError, accessing
from freshband.federated.loggers.base import missing, register, scalars_of
from freshband.federated.records import RoundRecord
from freshband.federated.settings import Training
from freshband.parameters import file_path


@final
@register("tensorboard")
class TensorBoard:
    """Writes scalars for TensorBoard: ``tensorboard --logdir FOLDER`` shows them.

    After a resume, later rounds in the folder, from a run that was killed, are hidden.

    Parameters
    ----------
    folder : path, optional
        Where to; by default ``tensorboard`` in the folder of the run.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = folder
        self._writer: Any = None

    def start(self, settings: Training, folder: Path | None, done: int) -> None:
        """Open the folder; see `Logger.start`."""
        given = self.folder if self.folder is not None or folder is None else folder / "tensorboard"
        if given is None:
            raise ParameterError("TensorBoard needs a folder: give one, or the run a folder")
        target = file_path("folder", given)
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise missing("TensorBoard", "train") from None
        make: Any = SummaryWriter
        with accessing("write", target):
            self._writer = make(str(target), purge_step=done + 1)

    def log(self, record: RoundRecord) -> None:
        """Write one round."""
        for name, value in scalars_of(record).items():
            self._writer.add_scalar(name, value, record.round)

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()
