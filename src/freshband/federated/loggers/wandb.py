"""Metrics of each round for Weights & Biases."""

from __future__ import annotations

import importlib
import os
import secrets
from pathlib import Path
from typing import Any, final

from freshband.federated.loggers.base import (
    flat_settings,
    missing,
    register,
    remembered,
    scalars_of,
)
from freshband.federated.records import RoundRecord
from freshband.federated.settings import Training


@final
@register("wandb")
class Wandb:
    """Logs settings and every round to Weights & Biases.

    Without a network everything is written to a folder, and ``wandb sync`` uploads it. A resumed
    run continues its own, whose identifier is in ``wandb.id`` in the folder of the run.

    Parameters
    ----------
    project : str, default "freshband"
    mode : {"online", "offline", "disabled"}, optional
        By default what ``WANDB_MODE`` says, else ``"offline"``.
    folder : path, optional
        Where files go; by default the folder of the run, else the current one.
    """

    def __init__(
        self,
        project: str = "freshband",
        mode: str | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self.project, self.mode, self.folder = project, mode, folder
        self._run: Any = None

    def start(self, settings: Training, folder: Path | None, done: int) -> None:
        """Begin or continue a run there; see `Logger.start`."""
        try:
            wandb: Any = importlib.import_module("wandb")
        except ImportError:
            raise missing("Weights & Biases", "wandb") from None
        where = self.folder if self.folder is not None else folder
        self._run = wandb.init(
            project=self.project,
            mode=self.mode or os.environ.get("WANDB_MODE", "offline"),
            dir=None if where is None else str(where),
            id=remembered(folder, "wandb", lambda: secrets.token_hex(4)),
            resume="allow",
            name=settings.build_policy().name,
            config=flat_settings(settings),
        )

    def log(self, record: RoundRecord) -> None:
        """Log one round."""
        self._run.log(scalars_of(record), step=record.round)

    def close(self) -> None:
        """Write what is left."""
        self._run.finish()
