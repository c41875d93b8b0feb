"""Clients side by side on a few threads: the fastest way on a CPU for models that fill a core."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import final

import numpy as np
import torch
from torch import nn

from freshband.federated.clients._base import (
    Crew,
    Exam,
    ExamResult,
    Indices,
    ParameterLayout,
    TrainingJob,
    Trial,
    naming,
)
from freshband.federated.clients._pointwise import at_risk, differentiate
from freshband.federated.data.base import Dataset


@final
class ThreadedClients:
    """Each worker is a Python thread with one torch thread and its own copy of the module.

    A client's arithmetic is the same whichever worker does it, so results do not depend on their
    number. Images are channels-last.
    """

    def __init__(self, module: nn.Module, dataset: Dataset, workers: int) -> None:
        self.layout = ParameterLayout(module)
        self.dataset = dataset
        self._exam = Exam(dataset)
        guarded = at_risk(module, dataset.shape)
        self._crew = Crew(workers, lambda: _Worker(module, self.layout, dataset, guarded))

    def train(self, jobs: Sequence[TrainingJob], lr: float) -> None:
        def work(worker: _Worker, job: TrainingJob) -> None:
            with naming([job]):
                worker.train(job, lr)

        for _ in self._crew.share(jobs, work):
            pass

    def count_correct(self, trials: Sequence[Trial]) -> Indices:
        return np.array(list(self._crew.share(trials, _Worker.count_correct)), np.int64)

    def examine(self, model: torch.Tensor) -> ExamResult:
        return self._exam.hold(self._crew, lambda worker, images: worker.scores(model, images))

    def close(self) -> None:
        self._crew.close()


class _Worker:
    """A module whose parameters are views of one row."""

    def __init__(
        self, module: nn.Module, layout: ParameterLayout, dataset: Dataset, guarded: bool
    ) -> None:
        self.module = copy.deepcopy(module).train()
        self.row = layout.read(module)
        layout.lend(self.row, self.module)
        self.parameters: list[torch.Tensor] = list(self.module.parameters())
        self.dataset = dataset
        self.guarded = guarded

    def _images(self, images: torch.Tensor) -> torch.Tensor:
        images = self.dataset.normalise(images).to(self.row.dtype)
        return images.contiguous(memory_format=torch.channels_last)

    def train(self, job: TrainingJob, lr: float) -> None:
        self.row.copy_(job.start)
        batches = torch.from_numpy(job.batches).to(self.row.device)
        for samples in batches:
            scores = self.module(self._images(self.dataset.train_images[samples]))
            loss = nn.functional.cross_entropy(scores, self.dataset.train_labels[samples])
            gradients = differentiate(loss, self.parameters, self.guarded)
            with torch.no_grad():
                torch._foreach_add_(self.parameters, gradients, alpha=-lr)
        torch.sub(job.start, self.row, out=job.out)
        job.out.div_(lr)

    def scores(self, model: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
        self.row.copy_(model)
        self.module.eval()
        with torch.no_grad():
            found: torch.Tensor = self.module(self._images(images))
        self.module.train()
        return found

    def count_correct(self, trial: Trial) -> int:
        samples = torch.from_numpy(trial.samples).to(self.row.device)
        answers = self.scores(trial.model, self.dataset.train_images[samples]).argmax(dim=1)
        return int((answers == self.dataset.train_labels[samples]).sum())
