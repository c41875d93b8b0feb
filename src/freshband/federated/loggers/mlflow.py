"""Metrics of each round for MLflow."""

from __future__ import annotations

import importlib
import time
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
@register("mlflow")
class MLflow:
    """Logs settings as parameters and every round as metrics to MLflow.

    A resumed run continues its MLflow run, whose identifier is in ``mlflow.id`` in the folder of
    the run.

    Parameters
    ----------
    tracking_uri : str, optional
        The server or folder, by default what ``MLFLOW_TRACKING_URI`` says.
    experiment : str, default "freshband"
        Made if it is not there.
    """

    def __init__(self, tracking_uri: str | None = None, experiment: str = "freshband") -> None:
        self.tracking_uri, self.experiment = tracking_uri, experiment
        self._client: Any = None
        self._run = ""

    def start(self, settings: Training, folder: Path | None, done: int) -> None:
        """Begin or continue an MLflow run; see `Logger.start`."""
        try:
            kind: Any = importlib.import_module("mlflow").MlflowClient
        except ImportError:
            raise missing("MLflow", "mlflow") from None
        self._client = kind(self.tracking_uri)
        self._run = remembered(folder, "mlflow", lambda: self._begin(settings))
        self._client.set_terminated(self._run, "RUNNING")

    def _begin(self, settings: Training) -> str:
        found = self._client.get_experiment_by_name(self.experiment)
        home = found.experiment_id if found else self._client.create_experiment(self.experiment)
        run = str(self._client.create_run(home, run_name=settings.build_policy().name).info.run_id)
        for name, value in flat_settings(settings).items():
            self._client.log_param(run, name, value)
        return run

    def log(self, record: RoundRecord) -> None:
        """Log one round."""
        now = int(1000 * time.time())
        for name, value in scalars_of(record).items():
            self._client.log_metric(self._run, name, value, timestamp=now, step=record.round)

    def close(self) -> None:
        """End the MLflow run."""
        self._client.set_terminated(self._run)
