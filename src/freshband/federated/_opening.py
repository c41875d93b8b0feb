"""What a federation trains, and on what: from the settings, or from the user's own objects."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from freshband.errors import ParameterError
from freshband.federated._own_things import read_dataset, read_partition
from freshband.federated._task import Task, task_of
from freshband.federated.clients._travel import Travel
from freshband.federated.clients._trying import (
    Findings,
    check_parameters,
    try_training,
    why_not_plain,
)
from freshband.federated.data import Dataset, Samples, load_dataset
from freshband.federated.models import build_model
from freshband.federated.partition import Partition, split_samples
from freshband.federated.settings import Training


@dataclasses.dataclass(frozen=True, eq=False)
class OwnNeeds:
    """What is more than a plain module on images with classes, and why."""

    task: Task
    travel: Travel
    found: Findings
    why: str


@dataclasses.dataclass(frozen=True, eq=False)
class Opened:
    """Data, who holds it, and the module."""

    dataset: Dataset  # on the device to train on
    partition: Partition
    module: nn.Module
    travel: Travel
    own: OwnNeeds | None  # None where everything is plain

    @property
    def tastes(self) -> NDArray[np.float64] | None:
        """The share of each class in what a client holds, (M, classes), where there are classes."""
        if not self.dataset.labelled:
            return None
        labels = self.dataset.train_labels.cpu().numpy()
        counts = self.partition.counts(labels, self.dataset.n_classes)
        return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def open_data(settings: Training, dataset: Any, partition: Any) -> tuple[Dataset, Partition]:
    """Return the data set, without what is held out, and its partition."""
    whole = read_dataset(dataset) or load_dataset(
        settings.dataset, seed=settings.seed, run=settings.run, **settings.dataset_options
    )
    whole = whole.hold_out(settings.held_out)
    dealt = read_partition(partition, whole, settings)
    if dealt is None:
        if "client" in whole.columns and "partition" not in settings.model_fields_set:
            raise ParameterError(
                "partition must be chosen for a data set that says whose samples are whose: "
                "'column', so that each client keeps its own, or another one to deal them anew"
            )
        labels = whole.train_labels.cpu() if whole.labelled else torch.zeros(whole.n_train).long()
        dealt = split_samples(
            labels, settings.clients, scheme=settings.partition,
            val_fraction=settings.val_fraction, seed=settings.seed, run=settings.run,
            columns=whole.columns, **settings.partition_options,
        )  # fmt: skip
    _check_partition(dealt, settings, whole)
    return whole, dealt


def open_things(settings: Training, device: torch.device, **given: Any) -> Opened:
    """Return everything that is trained and trained on; what does not fit is refused here."""
    whole, dealt = open_data(settings, given.get("dataset"), given.get("partition"))
    extra = {name: given.get(name) for name in ("loss", "optimiser", "metric")}
    task = task_of(settings, whole, **extra)
    model = given.get("model")
    name = settings.model or whole.default_model
    if model is None and not name:
        raise ParameterError(
            f"model must be given for the data set {whole.name!r}, which has no default model: "
            "Federation(settings, model=...) or Training(model=...)"
        )
    images = not isinstance(whole, Samples)
    module = build_model(
        model if model is not None else name, whole.shape, whole.n_classes, settings.seed,
        settings.run, scores=images and task.plain, **settings.model_options,
    )  # fmt: skip
    check_parameters(module)
    why = why_not_plain(module, whole, task)
    if settings.stays_local:
        why = why or "parameters stay local"
    placed = whole if whole.train_images.device == device else whole.to(device)
    if not why:
        _check_statistics(settings, module, ())
        return Opened(placed, dealt, module, Travel(module), None)
    if settings.path in ("stacked", "graphs"):
        raise ParameterError(
            f"path {settings.path!r} is for plain modules on images with classes, but {why}: use "
            "path 'auto' or 'threads'"
        )
    found = try_training(module, whole, task, settings.batch_size)
    _check_statistics(settings, module, found.statistics)
    travel = Travel(module, found.statistics, settings.statistics, settings.stays_local)
    return Opened(placed, dealt, module, travel, OwnNeeds(task, travel, found, why))


def _check_statistics(settings: Training, module: nn.Module, found: Sequence[str]) -> None:
    if settings.statistics != "averaged" and not found:
        raise ParameterError(
            f"statistics belongs to a model with buffers that training changes, such as "
            f"BatchNorm's; {type(module).__name__} has none, got {settings.statistics!r}"
        )


def _check_partition(partition: Partition, settings: Training, dataset: Dataset) -> None:
    if partition.n_clients != settings.clients:
        raise ParameterError(
            f"partition must have {settings.clients} clients, got {partition.n_clients}"
        )
    last = max(int(partition.held(one)[-1]) for one in range(partition.n_clients))
    if last >= dataset.n_train:
        raise ParameterError(
            f"partition must hold samples below {dataset.n_train}, got sample {last}"
        )
    bare = [one for one, held in enumerate(partition.val) if not len(held)]
    if settings.contribution_rule is not None and bare:
        raise ParameterError(
            f"contributions need validation samples of every client, client {bare[0]} has none"
        )
