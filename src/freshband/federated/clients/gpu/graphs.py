"""Clients on a GPU: the whole of their local training is recorded once and then replayed.

A GPU computes a small client's step in microseconds, provided that it is told fast enough what to
do. So all steps of many clients are recorded as one CUDA graph, which takes no Python to run, in
one of two ways:

``kernels``
    Modules of supported layers (`freshband.federated.clients.gpu._stacking`): one launch of a
    hand-written kernel computes a layer of all clients.
``mapped``
    Any other module (`_mapped`): `torch.func.vmap` over the clients, compiled by `torch.compile`.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib.util
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any, Literal, TypeVar, final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from freshband.errors import ParameterError
from freshband.federated.clients._base import (
    ExamResult,
    Indices,
    ParameterLayout,
    TrainingJob,
    Trial,
)
from freshband.federated.clients.gpu._layers import Arena
from freshband.federated.clients.gpu._mapped import MappedModel
from freshband.federated.clients.gpu._stacking import Stack, UnsupportedModuleError, stack
from freshband.federated.data.base import Dataset

__all__ = ["GraphedClients"]

_Precision = Literal["float32", "tf32", "bf16"]
_Way = Literal["kernels", "mapped"]

_log = logging.getLogger(__name__)

_TRIAL = 256  # most samples of a trial that are scored at once
_EXAM = 1000  # and of the test set
_STEP = 4  # graphs of kernels have room for a multiple of this number of clients
_TOGETHER: dict[_Way, int] = {"kernels": 40, "mapped": 4}


@final
class GraphedClients:
    """Clients side by side on one GPU, the data set's.

    ``precision`` is that of products; weights are kept, and sums taken, in float32. With "tf32"
    factors keep 10 bits of their fraction. With "bf16" they keep 7, and so do the arrays between
    layers, which halves the traffic. ``way`` is "kernels" by default where Triton is installed, the
    precision is below float32 and the module's layers are supported. Otherwise it is "mapped",
    whose first round compiles the module, which takes up to two minutes.

    ``together`` bounds the number of clients in a batch, and so the memory: a client of cnn8 takes
    40 MB and one of ResNet-18 300 MB, with "mapped" 280 MB and 1.8 GB in tf32. Larger numbers are
    trained one batch after the other. Batches of "kernels" cost less with fewer clients; those of
    "mapped" always compute ``together``.

    Results repeat bit by bit on the same GPU, whichever clients share a batch. Only `count_correct`
    and `examine`, which return numbers, wait for the GPU.
    """

    def __init__(
        self,
        module: nn.Module,
        dataset: Dataset,
        precision: _Precision = "tf32",
        *,
        way: _Way | None = None,
        together: int | None = None,
    ) -> None:
        device = dataset.train_images.device
        if device.type != "cuda":
            raise ParameterError(f"dataset must be on a GPU to train there, it is on {device}")
        if precision not in ("float32", "tf32", "bf16"):
            raise ParameterError(
                f"precision must be 'float32', 'tf32' or 'bf16', got {precision!r}"
            )
        self.dataset = dataset
        self._device = device
        self.layout = ParameterLayout(module)
        module = copy.deepcopy(module).to(device)
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        model: Stack | MappedModel | None = None
        if way != "mapped":
            try:
                model = _stack(module, self.layout, dataset, precision)
            except UnsupportedModuleError as why:
                name = type(module).__name__
                if way == "kernels":
                    raise ParameterError(
                        f"way must be 'mapped' for {name} in {precision}: {why}"
                    ) from None
                _log.info("%s is compiled, for the kernels cannot train it: %s", name, why)
        self.way: _Way = "mapped" if model is None else "kernels"
        self._together = together or _TOGETHER[self.way]
        if model is None:
            model = MappedModel(module, self.layout, dataset, dtype, self._together)
        self._model = model
        self._dtype = dtype
        self._precision = precision
        self._plans: dict[tuple[str, int, int], _Plan] = {}
        self._pool: Any = None  # of memory, for all graphs

    def train(self, jobs: Sequence[TrainingJob], lr: float) -> None:
        """Run the local training of all jobs; see `LocalTraining.train`."""
        with torch.cuda.device(self._device):
            for _, alike in groupby(jobs, key=lambda job: job.batches.shape):
                for some in _cut(list(alike), self._together):
                    self._train(some, lr)

    def count_correct(self, trials: Sequence[Trial]) -> npt.NDArray[np.int64]:
        """Count correct answers; see `LocalTraining.count_correct`."""
        whose, models, samples = [], [], []
        for at, trial in enumerate(trials):
            for piece in _cut(trial.samples, _TRIAL):
                whose.append(at)
                models.append(trial.model)
                samples.append(piece)
        correct = np.zeros(len(trials), np.int64)
        size = -(-max(map(len, samples), default=1) // 32) * 32
        with torch.cuda.device(self._device):
            right = [
                ((scores.argmax(dim=2) == self.dataset.train_labels[index]) & real).sum(dim=1)
                for scores, index, real in self._scores(models, samples, size, test=False)
            ]
        if right:
            np.add.at(correct, whose, torch.cat(right).cpu().numpy())
        return correct

    def examine(self, model: torch.Tensor) -> ExamResult:
        """Try one model on the test set; see `LocalTraining.examine`."""
        samples = list(_cut(np.arange(self.dataset.n_test), _EXAM))
        loss = torch.zeros((), dtype=torch.float64, device=model.device)
        correct = torch.zeros(self.dataset.n_classes, dtype=torch.int64, device=model.device)
        models = [model] * len(samples)
        with torch.cuda.device(self._device):
            for scores, index, real in self._scores(models, samples, len(samples[0]), test=True):
                labels = self.dataset.test_labels[index]
                lost = nn.functional.cross_entropy(scores.movedim(2, 1), labels, reduction="none")
                loss += (lost * real).sum(dtype=torch.float64)
                right = (scores.argmax(dim=2) == labels) & real
                correct.scatter_add_(0, labels.flatten(), right.flatten().to(torch.int64))
        return ExamResult(float(loss) / self.dataset.n_test, correct.cpu().numpy())

    def _scores(
        self, models: Sequence[torch.Tensor], samples: Sequence[Indices], size: int, test: bool
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Yield scores, samples padded to ``size``, and which of these are real, batch by batch."""
        pairs = list(zip(models, samples, strict=True))
        for some in _cut(pairs, self._together):
            index = np.zeros((len(some), size + 1), np.int64)  # and how many are real
            for row, (_, piece) in zip(index, some, strict=True):
                row[: len(piece)] = piece
                row[size] = len(piece)
            sent = _send(index, self._device)
            at = sent[:, :size]
            real = torch.arange(size, device=self._device) < sent[:, size:]
            plan = self._plan("test" if test else "try", 1, size, len(some))
            _place([model for model, _ in some], plan.arena.rows)
            plan.samples[: len(some), 0] = at
            plan.arena.count.fill_(len(some))
            plan.graph.replay()
            yield plan.scores[: len(some)], at, real

    def _train(self, jobs: Sequence[TrainingJob], lr: float) -> None:
        """Train jobs with batches of one shape, all at once."""
        batches = np.stack([job.batches for job in jobs])
        n, steps, images = batches.shape
        plan = self._plan("train", steps, images, n)
        starts, outs = [job.start for job in jobs], [job.out for job in jobs]
        _place(starts, plan.arena.rows)
        plan.samples[:n] = _send(batches, self._device)
        plan.arena.count.fill_(n)
        plan.arena.lr.fill_(lr)
        plan.graph.replay()
        torch._foreach_copy_(outs, starts)
        torch._foreach_sub_(outs, list(plan.arena.rows[:n].unbind()))
        torch._foreach_div_(outs, lr)

    def _plan(self, kind: str, steps: int, images: int, clients: int) -> _Plan:
        """Return a graph with room enough; a larger one takes the place of a smaller."""
        key = (kind, steps, images)
        if key not in self._plans or self._plans[key].arena.room < clients:
            self._plans.pop(key, None)
            step = _STEP if self.way == "kernels" else self._together
            self._plans[key] = self._record(kind, steps, images, -(-clients // step) * step)
        return self._plans[key]

    def _record(self, kind: str, steps: int, images: int, room: int) -> _Plan:
        device = self._device
        arena = Arena(
            rows=torch.zeros((room, self.layout.size), device=device),
            low=torch.zeros((room, self._model.width), dtype=self._dtype, device=device),
            count=torch.zeros(1, dtype=torch.int32, device=device),
            lr=torch.zeros(1, device=device),
            images=images,
        )
        plan = _Plan(
            arena,
            samples=torch.zeros((room, steps, images), dtype=torch.int64, device=device),
            scores=torch.zeros((room, images, self.dataset.n_classes), device=device),
            graph=torch.cuda.CUDAGraph(),
        )
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with _multiplying(self._precision):
            with torch.cuda.stream(stream):
                self._run(plan, kind)  # compiles, and lets libraries set themselves up
            with torch.cuda.graph(plan.graph, pool=self._pool, stream=stream):
                self._run(plan, kind)
        self._pool = plan.graph.pool()  # graphs run one after the other and may share memory
        torch.cuda.current_stream(device).wait_stream(stream)
        return plan

    def _run(self, plan: _Plan, kind: str) -> None:
        data = self.dataset
        if kind == "train":
            self._model.train(plan.arena, data.train_images, data.train_labels, plan.samples)
        else:
            images = data.test_images if kind == "test" else data.train_images
            plan.scores.copy_(self._model.score(plan.arena, images, plan.samples))

    def close(self) -> None:
        """Give back the graphs and their memory."""
        self._plans.clear()
        self._pool = None


@dataclasses.dataclass
class _Plan:
    """A recorded graph and the memory it reads and writes."""

    arena: Arena
    samples: torch.Tensor
    scores: torch.Tensor
    graph: torch.cuda.CUDAGraph


def _stack(
    module: nn.Module, layout: ParameterLayout, dataset: Dataset, precision: _Precision
) -> Stack:
    if precision == "float32":
        raise UnsupportedModuleError("the kernels multiply in tf32 or bf16")
    if importlib.util.find_spec("triton") is None:
        raise UnsupportedModuleError("Triton is not installed")
    channels, height, width = dataset.shape
    return stack(module, layout, (channels, height, width), dataset.mean, dataset.std)


def _place(models: Sequence[torch.Tensor], rows: torch.Tensor) -> None:
    """Copy models into the first rows; clients of a round often share one."""
    if all(model is models[0] for model in models):
        rows[: len(models)] = models[0]
    else:
        torch._foreach_copy_(list(rows[: len(models)].unbind()), list(models))


def _send(numbers: npt.NDArray[np.int64], device: torch.device) -> torch.Tensor:
    """Copy to the GPU without waiting for it."""
    return torch.from_numpy(numbers).pin_memory().to(device, non_blocking=True)


_Some = TypeVar("_Some", list[TrainingJob], list[tuple[torch.Tensor, Indices]], Indices)


def _cut(work: _Some, size: int) -> Iterator[_Some]:
    for at in range(0, len(work), size):
        yield work[at : at + size]


@contextmanager
def _multiplying(precision: _Precision) -> Iterator[None]:
    """Set torch's precision of products, and algorithms that repeat, while a graph is recorded."""
    cudnn: Any = torch.backends.cudnn
    matmul: Any = torch.backends.cuda.matmul
    wanted = "tf32" if precision == "tf32" else "ieee"
    before = (cudnn.deterministic, cudnn.conv.fp32_precision, matmul.fp32_precision)
    cudnn.deterministic = True
    cudnn.conv.fp32_precision = matmul.fp32_precision = wanted
    try:
        yield
    finally:
        cudnn.deterministic, cudnn.conv.fp32_precision, matmul.fp32_precision = before
