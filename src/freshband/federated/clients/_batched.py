"""Clients as one batch over stacked parameters: the fastest path for tiny models."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias, TypeVar, final

import numpy as np
import torch
from torch import nn

from freshband.errors import ParameterError
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

_Work = TypeVar("_Work")
_Views: TypeAlias = Mapping[str, torch.Tensor]
_Forward: TypeAlias = Callable[[_Views, torch.Tensor], torch.Tensor]
_ELEMENTWISE = (nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Identity)


def is_dense(module: nn.Module) -> bool:
    """Whether a module is a sequence of dense layers and elementwise functions."""
    return isinstance(module, nn.Sequential) and all(
        isinstance(layer, (nn.Linear, *_ELEMENTWISE))
        or (isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) == (1, -1))
        for layer in module
    )


@final
class StackedClients:
    """A few clients at a time, their parameters stacked, every layer computed for all at once.

    A sequence of dense layers becomes batched matrix products; other modules go through
    `torch.func.vmap`. How clients are stacked, at most ``stack`` at a time, depends on how many
    there are and never on the number of workers, so workers change no result.
    """

    def __init__(self, module: nn.Module, dataset: Dataset, workers: int, stack: int = 16) -> None:
        self.layout = ParameterLayout(module)
        self.dataset = dataset
        self._exam = Exam(dataset)
        self._stack = stack
        self._dtype = next(module.parameters()).dtype
        batch = _dense if is_dense(module) else _mapped
        self._try(batch(copy.deepcopy(module).train()), module)
        self._guarded = at_risk(module, dataset.shape)
        self._crew = Crew(workers, lambda: batch(copy.deepcopy(module).train()))

    def _try(self, scores_of: _Forward, module: nn.Module) -> None:
        """Refuse a module that cannot be stacked: vmap does not know every operation."""
        images = self._images(self.dataset.train_images[:2])
        row = self.layout.read(module).to(images.device)
        try:
            for clients in (1, 2):
                rows = row.expand(clients, -1).clone().requires_grad_()
                scores_of(self.layout.views(rows), images.expand(clients, *images.shape)).sum()
        except Exception as error:  # of any type
            why = str(error).partition("\n")[0]
            raise ParameterError(
                f"model cannot be stacked, {type(module).__name__} fails: {why}; use path='threads'"
            ) from None

    def _split(self, work: Sequence[_Work]) -> list[Sequence[_Work]]:
        if not work:
            return []
        stacks = max(-(-len(work) // self._stack), min(len(work) // 4, 2), 1)
        edges = [len(work) * i // stacks for i in range(stacks + 1)]
        return [work[low:high] for low, high in pairwise(edges)]

    def _images(self, images: torch.Tensor) -> torch.Tensor:
        return self.dataset.normalise(images).to(self._dtype)

    def train(self, jobs: Sequence[TrainingJob], lr: float) -> None:
        def work(scores_of: _Forward, some: Sequence[TrainingJob]) -> None:
            with naming(some):
                self._train(scores_of, some, lr)

        for _ in self._crew.share(self._split(jobs), work):
            pass

    def _train(self, scores_of: _Forward, jobs: Sequence[TrainingJob], lr: float) -> None:
        rows = torch.stack([job.start for job in jobs])
        starts = rows.clone()
        leaves = {
            name: view.detach().requires_grad_() for name, view in self.layout.views(rows).items()
        }
        parameters = list(leaves.values())
        batches = torch.from_numpy(np.stack([job.batches for job in jobs])).to(rows.device)
        for step in range(batches.shape[1]):
            samples = batches[:, step]
            scores = scores_of(leaves, self._images(self.dataset.train_images[samples]))
            labels = self.dataset.train_labels[samples]
            loss = nn.functional.cross_entropy(
                scores.flatten(0, 1), labels.flatten(), reduction="sum"
            )
            gradients = differentiate(loss / samples.shape[1], parameters, self._guarded)
            with torch.no_grad():
                torch._foreach_add_(parameters, gradients, alpha=-lr)
        starts.sub_(rows).div_(lr)
        for job, update in zip(jobs, starts, strict=True):
            job.out.copy_(update)

    def count_correct(self, trials: Sequence[Trial]) -> Indices:
        counts = list(self._crew.share(self._split(trials), self._count))
        return np.concatenate([np.zeros(0, np.int64), *counts])

    def _count(self, scores_of: _Forward, trials: Sequence[Trial]) -> Indices:
        sizes = [len(trial.samples) for trial in trials]
        rows = torch.stack([trial.model for trial in trials])
        held = [torch.from_numpy(trial.samples) for trial in trials]
        samples = nn.utils.rnn.pad_sequence(held, batch_first=True).to(rows.device)
        with torch.no_grad():
            images = self._images(self.dataset.train_images[samples])
            answers = scores_of(self.layout.views(rows), images).argmax(dim=2)
            right = (answers == self.dataset.train_labels[samples]).cpu().numpy()
        real = np.arange(max(sizes)) < np.array(sizes)[:, None]
        return np.asarray((right & real).sum(axis=1), np.int64)

    def examine(self, model: torch.Tensor) -> ExamResult:
        views = self.layout.views(model[None])
        return self._exam.hold(
            self._crew, lambda scores_of, images: scores_of(views, self._images(images)[None])[0]
        )

    def close(self) -> None:
        self._crew.close()


def _dense(module: nn.Module) -> _Forward:
    """Return (parameters (K, ...), images (K, B, ...)) -> scores (K, B, classes), by products."""
    layers = list(module.named_children())

    def forward(views: _Views, images: torch.Tensor) -> torch.Tensor:
        found = images.flatten(2)
        for name, layer in layers:
            if isinstance(layer, nn.Linear):
                weight = views[f"{name}.weight"].transpose(1, 2)
                if layer.bias is None:
                    found = torch.bmm(found, weight)
                else:
                    found = torch.baddbmm(views[f"{name}.bias"][:, None], found, weight)
            elif not isinstance(layer, nn.Flatten):
                found = layer(found)
        return found

    return forward


def _mapped(module: nn.Module) -> _Forward:
    """Return the same by `torch.func.vmap`, for any module; not to be shared by threads."""

    def one(views: dict[str, torch.Tensor], images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = torch.func.functional_call(module, views, (images,))
        return scores

    mapped = torch.func.vmap(one)

    def forward(views: _Views, images: torch.Tensor) -> torch.Tensor:
        plain = {name: view.contiguous() for name, view in views.items()}  # or GroupNorm fails
        scores: torch.Tensor = mapped(plain, images)
        return scores

    return forward
