"""What clients learn: the loss they make smaller, how they make their steps, and the metric."""

from __future__ import annotations

import dataclasses
from typing import Any

from freshband.federated.data.base import Dataset
from freshband.federated.losses import CrossEntropy, Loss, build_loss
from freshband.federated.metrics import Accuracy, Metric, build_metric
from freshband.federated.optimisers import OptimiserSpec, Sgd, build_optimiser
from freshband.federated.settings import Training


@dataclasses.dataclass(frozen=True, eq=False)
class Task:
    """A loss, an optimiser and a metric, and the number of rounds a schedule goes by."""

    loss: Loss = dataclasses.field(default_factory=CrossEntropy)
    optimiser: OptimiserSpec = dataclasses.field(default_factory=Sgd)
    metric: Metric = dataclasses.field(default_factory=Accuracy)
    rounds: int = 1

    @property
    def plain(self) -> bool:
        """Whether it is the paper's: SGD on the cross-entropy, judged by accuracy."""
        return (self.loss, self.optimiser, self.metric) == (CrossEntropy(), Sgd(), Accuracy())

    def rate(self, round: int) -> float:
        """Return what the clients' step is multiplied with in a round."""
        schedule = getattr(self.optimiser, "rate", None)
        return 1.0 if schedule is None else float(schedule(round, self.rounds))


def task_of(
    settings: Training,
    dataset: Dataset,
    loss: Any = None,
    optimiser: Any = None,
    metric: Any = None,
) -> Task:
    """Return the task of a run: of what the user gave, else of the settings or the data."""
    classes = dataset.n_classes > 0
    return Task(
        loss=build_loss(
            loss or settings.loss or ("cross-entropy" if classes else "mse"),
            **settings.loss_options,
        ),
        optimiser=build_optimiser(optimiser or settings.optimiser, **settings.optimiser_options),
        metric=build_metric(
            metric or settings.metric or ("accuracy" if classes else "r2"),
            **settings.metric_options,
        ),
        rounds=settings.rounds,
    )
