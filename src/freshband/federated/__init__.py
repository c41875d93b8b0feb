"""Federated training over unreliable channels: data, who holds it, and models trained on it.

Everything but the partitions needs the extra ``train``: ``pip install 'freshband[train]'``.

Examples
--------
>>> from freshband.federated import build_model, load_dataset, split_samples
>>> digits = load_dataset("digits")
>>> clients = split_samples(digits.train_labels, n_clients=10, seed=0)
>>> model = build_model(digits.default_model, digits.shape, digits.n_classes, seed=0)
>>> model(digits.normalise(digits.train_images[clients.train[0]])).shape[1]
10
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from freshband._lazy import import_on_use

__all__ = [
    "Dataset",
    "Federation",
    "Partition",
    "RoundRecord",
    "Run",
    "Training",
    "build_model",
    "compare",
    "export_model",
    "load_dataset",
    "resume_run",
    "split_samples",
    "start_run",
    "train",
    "train_together",
]

if TYPE_CHECKING:
    from freshband.federated.comparison import compare
    from freshband.federated.data import Dataset, load_dataset
    from freshband.federated.engine import Federation
    from freshband.federated.export import export_model
    from freshband.federated.models import build_model
    from freshband.federated.partition import Partition, split_samples
    from freshband.federated.records import RoundRecord
    from freshband.federated.runs import Run, resume_run, start_run
    from freshband.federated.settings import Training
    from freshband.federated.together import train_together
    from freshband.federated.training import train

__getattr__, __dir__ = import_on_use(  # partitions do not need torch
    __name__,
    {
        ".comparison": ["compare"],
        ".data": ["Dataset", "load_dataset"],
        ".engine": ["Federation"],
        ".export": ["export_model"],
        ".models": ["build_model"],
        ".partition": ["Partition", "split_samples"],
        ".records": ["RoundRecord"],
        ".runs": ["Run", "resume_run", "start_run"],
        ".settings": ["Training"],
        ".together": ["train_together"],
        ".training": ["train"],
    },
)
