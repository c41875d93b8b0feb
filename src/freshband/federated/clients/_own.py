"""Clients with anything of the user's own: any module, loss, optimiser, metric and samples."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Literal, final

import numpy as np
import torch
from torch import nn

from freshband.errors import RuleError
from freshband.federated._task import Task
from freshband.federated.clients._base import (
    Crew,
    ExamResult,
    Indices,
    TrainingJob,
    Trial,
    naming,
)
from freshband.federated.clients._noise import drawing_from
from freshband.federated.clients._pointwise import differentiate
from freshband.federated.clients._travel import Travel
from freshband.federated.clients._trying import Findings, check_loss, measure
from freshband.federated.data.base import Dataset
from freshband.federated.losses.base import scores_of
from freshband.federated.metrics import Accuracy
from freshband.federated.optimisers.base import clip_gradients

_PIECE = 250  # test samples at a time, whatever the number of workers


@final
class OwnClients:
    """Each worker is a thread with its own copy of the module; frozen weights are shared.

    A client's arithmetic is the same whichever worker does it, and what its model draws depends on
    seed, run, round and client alone.
    """

    def __init__(
        self,
        module: nn.Module,
        dataset: Dataset,
        workers: int,
        task: Task,
        travel: Travel,
        found: Findings,
    ) -> None:
        self.layout, self.travel = travel.travels, travel
        self.dataset, self.task = dataset, task
        self._crew = Crew(workers, lambda: _Worker(module, dataset, task, travel, found))

    def train(self, jobs: Sequence[TrainingJob], lr: float) -> None:
        def work(worker: _Worker, job: TrainingJob) -> None:
            with naming([job]):
                worker.train(job, lr)

        for _ in self._crew.share(jobs, work):
            pass

    def count_correct(self, trials: Sequence[Trial]) -> Indices:
        """Return the metric of each trial times the number of its samples."""

        def work(worker: _Worker, trial: Trial) -> float:
            samples = torch.from_numpy(trial.samples).to(worker.row.device)
            with naming([trial]):
                outputs = scores_of(worker.outputs(trial.model, trial.kept, "train", samples))
                score = measure(self.task, outputs, worker.targets("train", samples))
            return score * len(trial.samples)

        return np.array(list(self._crew.share(trials, work)))

    def examine(self, model: torch.Tensor, kept: torch.Tensor | None = None) -> ExamResult:
        """Try one model on the whole test set, with what stays with the clients beside it."""
        labels = self.dataset.test_labels

        def work(worker: _Worker, piece: slice) -> tuple[float, torch.Tensor]:
            outputs = worker.outputs(model, kept, "test", piece)
            with torch.no_grad():
                loss = float(self.task.loss(outputs, worker.targets("test", piece)))
            return loss * len(labels[piece]), scores_of(outputs)

        pieces = [slice(at, at + _PIECE) for at in range(0, len(labels), _PIECE)]
        losses, outputs = zip(*self._crew.share(pieces, work), strict=True)
        scores = torch.cat(outputs)
        loss = sum(losses) / len(labels)
        if self.task.metric == Accuracy() and self.dataset.labelled:
            right = labels[scores.argmax(dim=-1) == labels]
            counts = torch.bincount(right, minlength=self.dataset.n_classes)
            return ExamResult(loss, counts.cpu().numpy())
        return ExamResult(loss, np.zeros(0, np.int64), measure(self.task, scores, labels))

    def close(self) -> None:
        self._crew.close()


class _Worker:
    """A module whose trained parameters are views of a row that travels and one that stays."""

    def __init__(
        self, module: nn.Module, dataset: Dataset, task: Task, travel: Travel, found: Findings
    ) -> None:
        self.module = copy.deepcopy(module)
        for mine, theirs in zip(self.module.parameters(), module.parameters(), strict=True):
            if not theirs.requires_grad:
                mine.data = theirs.data
        self.row, self.kept = travel.travels.read(module), travel.stays.read(module)
        self._born = self.kept.clone()
        travel.travels.lend(self.row, self.module)
        travel.stays.lend(self.kept, self.module)
        self.parameters: list[torch.Tensor] = [
            each for each in self.module.parameters() if each.requires_grad
        ]
        self.dataset, self.task, self.travel, self.found = dataset, task, travel, found
        buffers = dict(self.module.named_buffers())
        self._first = {name: buffers[name].clone() for name in travel.resets}
        self._clip = getattr(task.optimiser, "clip", None)
        self._be(training=True)

    def _be(self, *, training: bool) -> None:
        self.module.train(training)
        for name in self.travel.still:
            self.module.get_submodule(name).training = False  # not what it contains, say dropout

    def _load(self, model: torch.Tensor, kept: torch.Tensor | None) -> None:
        """Put a model, and what its client keeps, into the module."""
        self.travel.settle(self.row.copy_(model))
        self.kept.copy_(self._born if kept is None else kept)
        buffers = dict(self.module.named_buffers())
        for layout, row in ((self.travel.travels, self.row), (self.travel.stays, self.kept)):
            views = layout.views(row) if layout.buffers else {}
            for name in layout.buffers:
                buffers[name].copy_(views[name])
        for name, values in self._first.items():
            buffers[name].copy_(values)

    def _unload(self) -> None:
        """Copy the statistics, which a module may also have put elsewhere, into the rows."""
        buffers = dict(self.module.named_buffers())
        for layout, row in ((self.travel.travels, self.row), (self.travel.stays, self.kept)):
            views = layout.views(row) if layout.buffers else {}
            for name in layout.buffers:
                if buffers[name].shape != views[name].shape:
                    raise RuleError(
                        f"the buffer {name!r} must keep its shape {tuple(views[name].shape)}, got "
                        f"{tuple(buffers[name].shape)}"
                    )
                views[name].copy_(buffers[name])

    def _inputs(
        self, part: Literal["train", "test"], samples: torch.Tensor | slice
    ) -> list[torch.Tensor]:
        found = []
        for each in self.dataset.inputs(part, samples):
            if each.is_floating_point():
                each = each.to(self.row.dtype)
                if each.ndim == 4:
                    each = each.contiguous(memory_format=torch.channels_last)
            found.append(each)
        return found

    def targets(
        self, part: Literal["train", "test"], samples: torch.Tensor | slice
    ) -> torch.Tensor:
        found: torch.Tensor = getattr(self.dataset, f"{part}_labels")[samples]
        return found.to(self.row.dtype) if found.is_floating_point() else found

    def train(self, job: TrainingJob, lr: float) -> None:
        self._load(job.start, job.kept)
        device = self.row.device
        with (
            drawing_from(job.noise, device, self.found.pure) if self.found.draws else nullcontext()
        ):
            self._make_steps(torch.from_numpy(job.batches).to(device), job.round, lr)
        self._unload()
        torch.sub(job.start, self.row, out=job.out)
        job.out.div_(lr)
        if job.kept is not None:
            job.kept.copy_(self.kept)

    def _make_steps(self, batches: torch.Tensor, round: int, lr: float) -> None:
        optimiser = self.task.optimiser.build(self.parameters, lr * self.task.rate(round))
        for step, samples in enumerate(batches, start=1):
            outputs = self.module(*self._inputs("train", samples))
            loss = self.task.loss(outputs, self.targets("train", samples))
            check_loss(loss)
            if not math.isfinite(loss.item()):
                raise RuleError(f"the loss is {loss.item()} in step {step} of {len(batches)}")
            gradients = differentiate(loss, self.parameters, self.found.guarded)
            for parameter, gradient in zip(self.parameters, gradients, strict=True):
                parameter.grad = gradient
            clip_gradients(self.parameters, self._clip)
            optimiser.step()

    def outputs(
        self,
        model: torch.Tensor,
        kept: torch.Tensor | None,
        part: Literal["train", "test"],
        samples: torch.Tensor | slice,
    ) -> Any:
        """Return what the module makes of some samples, as it is used and not trained."""
        self._load(model, kept)
        self._be(training=False)
        try:
            with torch.no_grad():
                return self.module(*self._inputs(part, samples))
        finally:
            self._be(training=True)
