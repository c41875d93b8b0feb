"""Clients side by side on a few threads: the fastest way on a CPU for models that fill a core."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from freshband.federated.clients.base import Exam, ExamResult, Job, Layout, Trial
from freshband.federated.clients.crew import Crew
from freshband.federated.clients.pointwise import at_risk, differentiate
from freshband.federated.data.base import Dataset

__all__ = ["ThreadedClients"]


@final
class ThreadedClients:
    """Each worker is a Python thread with one torch thread and a module of its own.

    Each client's arithmetic is the same whichever worker does it, so results do not depend on
    their number. Images go channels-last.

    Parameters
    ----------
    module : nn.Module
        The model; it is copied.
    dataset : Dataset
        On the device to train on.
    workers : int >= 1
        Clients at a time.
    """

    def __init__(self, module: nn.Module, dataset: Dataset, workers: int) -> None:
        self.layout = Layout(module)
        self.dataset = dataset
        self.exam = Exam(dataset)
        guarded = at_risk(module, dataset.shape)
        self.crew = Crew([_Worker(module, self.layout, dataset, guarded) for _ in range(workers)])

    def train(self, jobs: Sequence[Job], lr: float) -> None:
        """Run the local training of all jobs; see `LocalTraining.train`."""
        for _ in self.crew.share(jobs, lambda worker, job: worker.train(job, lr)):
            pass

    def count_correct(self, trials: Sequence[Trial]) -> npt.NDArray[np.int64]:
        """Count correct answers; see `LocalTraining.count_correct`."""
        return np.array(list(self.crew.share(trials, _Worker.count_correct)), np.int64)

    def examine(self, model: torch.Tensor) -> ExamResult:
        """Try one model on the test set; see `LocalTraining.examine`."""
        return self.exam.gather(
            self.crew.share(
                self.exam.pieces, lambda worker, piece: worker.examine(model, self.exam, piece)
            )
        )

    def close(self) -> None:
        """End the threads."""
        self.crew.close()


class _Worker:
    """A module whose parameters are views of one row."""

    def __init__(self, module: nn.Module, layout: Layout, dataset: Dataset, guarded: bool) -> None:
        self.module = copy.deepcopy(module).train()
        self.row = layout.read(module)
        layout.lend(self.row, self.module)
        self.parameters: list[torch.Tensor] = list(self.module.parameters())
        self.dataset = dataset
        self.guarded = guarded

    def _images(self, samples: torch.Tensor) -> torch.Tensor:
        images = self.dataset.normalise(self.dataset.train_images[samples]).to(self.row.dtype)
        return images.contiguous(memory_format=torch.channels_last)

    def train(self, job: Job, lr: float) -> None:
        self.row.copy_(job.start)
        batches = torch.from_numpy(job.batches).to(self.row.device)
        for samples in batches:
            labels = self.dataset.train_labels[samples]
            loss = nn.functional.cross_entropy(self.module(self._images(samples)), labels)
            gradients = differentiate(loss, self.parameters, self.guarded)
            with torch.no_grad():
                torch._foreach_add_(self.parameters, gradients, alpha=-lr)
        torch.sub(job.start, self.row, out=job.out)
        job.out.div_(lr)

    @contextmanager
    def _holding(self, model: torch.Tensor) -> Iterator[None]:
        self.row.copy_(model)
        self.module.eval()
        with torch.no_grad():
            yield
        self.module.train()

    def count_correct(self, trial: Trial) -> int:
        samples = torch.from_numpy(trial.samples).to(self.row.device)
        with self._holding(trial.model):
            answers = self.module(self._images(samples)).argmax(dim=1)
        return int((answers == self.dataset.train_labels[samples]).sum())

    def examine(
        self, model: torch.Tensor, exam: Exam, piece: slice
    ) -> tuple[torch.Tensor, torch.Tensor]:
        with self._holding(model):
            images = self.dataset.normalise(self.dataset.test_images[piece]).to(self.row.dtype)
            images = images.contiguous(memory_format=torch.channels_last)
            return exam.mark(self.module(images), piece)
