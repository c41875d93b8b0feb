"""Clients on a GPU: the whole of their local training is recorded once and then replayed.

A GPU does a small client's step in microseconds, if only it is told fast enough what to do. So all
steps of all clients are recorded as one CUDA graph, which takes no Python to run, with one of two
ways to lay clients side by side:

``kernels``
    Models of known layers (`freshband.federated.clients.gpu.layers`): one launch of a kernel of our
    own does a layer of all clients. A graph has room for a number of clients and serves fewer
    at a cost that shrinks with them.
``mapped``
    Any other module (`freshband.federated.clients.gpu.mapped`): `torch.func.vmap` over all clients,
    compiled. A graph serves a fixed number of clients; where there are fewer, the rest of its rows
    is computed in vain.
"""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from freshband.errors import ParameterError
from freshband.federated.clients.base import ExamResult, Indices, Job, Layout, Trial
from freshband.federated.clients.gpu.layers import Arena, Stack, stack
from freshband.federated.clients.gpu.mapped import MappedModel
from freshband.federated.data.base import Dataset

__all__ = ["GraphedClients", "Precision", "Way"]

Precision = Literal["float32", "tf32", "bf16"]
Way = Literal["kernels", "mapped"]

_TRIAL = 256  # most samples of a trial that one model of a batch is given
_EXAM = 1000  # and of the test set
_KERNELS, _MAPPED = 40, 8  # clients in a batch, by way


@final
class GraphedClients:
    """Clients side by side on one GPU.

    Parameters
    ----------
    module : nn.Module
        The model; it is copied.
    dataset : Dataset
        On the GPU to train on, where it stays.
    precision : {"tf32", "float32", "bf16"}, default "tf32"
        What is multiplied. Weights are always kept, and sums taken, in float32. With "tf32"
        factors are cut to 10 bits behind the point; with "bf16" they are rounded to 7, and what
        flows between layers is stored so, at half the traffic.
    way : {"kernels", "mapped"}, optional
        How clients are laid side by side; by default the first that can: "kernels" wants Triton,
        a precision below float32, and layers it knows.
    together : int >= 1, optional
        Most clients in a batch; more are trained one batch after the other. It bounds memory, of
        which a client of cnn8 takes 40 MB and one of ResNet-18 300. By default 40, and 8 for
        "mapped", whose batches are always full.
    compiled : bool, default True
        Whether "mapped" goes through `torch.compile`, which takes a minute once.

    Attributes
    ----------
    way : {"kernels", "mapped"}
        The one chosen.

    Notes
    -----
    Results repeat bit by bit on the same GPU, whichever clients share a batch. Nothing waits for
    the GPU but `count_correct` and `examine`, which return numbers.
    """

    def __init__(
        self,
        module: nn.Module,
        dataset: Dataset,
        precision: Precision = "tf32",
        *,
        way: Way | None = None,
        together: int | None = None,
        compiled: bool = True,
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
        self.layout = Layout(module)
        module = copy.deepcopy(module).to(device)
        stacked = None
        if way != "mapped" and precision != "float32" and importlib.util.find_spec("triton"):
            stacked = stack(module, self.layout, dataset.shape, dataset.mean, dataset.std)
        if way == "kernels" and stacked is None:
            raise ParameterError(
                f"way must be 'mapped' for {type(module).__name__} in {precision}: 'kernels' "
                "wants Triton, tf32 or bf16, and layers that it knows"
            )
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self.way: Way = "mapped" if stacked is None else "kernels"
        self._side: _Side
        if stacked is None:
            self._together = together or _MAPPED
            model = MappedModel(module, self.layout, dataset, dtype, compiled=compiled)
            self._side = _Mapped(model, self.layout, dataset, self._together)
        else:
            self._together = together or _KERNELS
            self._side = _Stacked(stacked, self.layout, dataset, dtype)
        self._precision = precision

    def train(self, jobs: Sequence[Job], lr: float) -> None:
        """Run the local training of all jobs; see `LocalTraining.train`."""
        with torch.cuda.device(self._device), _multiplying(self._precision):
            for _, alike in groupby(jobs, key=lambda job: job.batches.shape):
                for some in _cut(list(alike), self._together):
                    self._side.train(some, lr)

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
        with torch.cuda.device(self._device), _multiplying(self._precision):
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
        with torch.cuda.device(self._device), _multiplying(self._precision):
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
            yield self._side.scores([model for model, _ in some], at, test), at, real

    def close(self) -> None:
        """Give back the graphs and their memory."""
        self._side.close()


class _Side(Protocol):
    """A way to lay clients side by side."""

    def train(self, jobs: Sequence[Job], lr: float) -> None:
        """Train jobs with batches of one shape."""
        ...

    def scores(
        self, models: Sequence[torch.Tensor], samples: torch.Tensor, test: bool
    ) -> torch.Tensor:
        """Return float32 scores, shape (models, samples, classes)."""
        ...

    def close(self) -> None:
        """Give back memory."""
        ...


class _Plan:
    """A recorded graph of stacked clients and the memory it reads and writes."""

    def __init__(self, arena: Arena, samples: torch.Tensor, scores: torch.Tensor) -> None:
        self.arena = arena
        self.samples = samples
        self.scores = scores
        self.graph = torch.cuda.CUDAGraph()


class _Stacked:
    """All clients in one graph of the stack's kernels."""

    def __init__(self, model: Stack, layout: Layout, dataset: Dataset, dtype: torch.dtype) -> None:
        self.model = model
        self.size = layout.size
        self.dataset = dataset
        self.dtype = dtype
        self.plans: dict[tuple[str, int, int], _Plan] = {}
        self.pool: Any = None

    def _plan(self, kind: str, steps: int, images: int, clients: int) -> _Plan:
        """Return a graph with room enough; a larger one takes the place of a smaller."""
        key = (kind, steps, images)
        if key not in self.plans or self.plans[key].arena.room < clients:
            if key in self.plans:
                del self.plans[key]
            self.plans[key] = self._record(kind, steps, images, -(-clients // 4) * 4)
        return self.plans[key]

    def _record(self, kind: str, steps: int, images: int, room: int) -> _Plan:
        device = self.dataset.train_images.device
        arena = Arena(
            rows=torch.zeros((room, self.size), device=device),
            low=torch.zeros((room, self.model.width), dtype=self.dtype, device=device),
            count=torch.zeros(1, dtype=torch.int32, device=device),
            lr=torch.zeros(1, device=device),
            images=images,
        )
        samples = torch.zeros((room, steps, images), dtype=torch.int64, device=device)
        scores = torch.zeros((room, images, self.dataset.n_classes), device=device)
        plan = _Plan(arena, samples, scores)
        run = self._training if kind == "train" else self._scoring
        pictures = self.dataset.test_images if kind == "test" else self.dataset.train_images
        self.pool = _record(plan.graph, self.pool, device, lambda: run(plan, pictures))
        return plan

    def _training(self, plan: _Plan, pictures: torch.Tensor) -> None:
        labels = self.dataset.train_labels[plan.samples]
        self.model.load(plan.arena)
        for step in range(plan.samples.shape[1]):
            scores = self.model.scores(plan.arena, pictures, plan.samples, step, keep=True)
            self.model.descend(plan.arena, scores, labels[:, step])

    def _scoring(self, plan: _Plan, pictures: torch.Tensor) -> None:
        self.model.load(plan.arena)
        scores = self.model.scores(plan.arena, pictures, plan.samples, 0, keep=False)
        plan.scores.copy_(scores)

    def train(self, jobs: Sequence[Job], lr: float) -> None:
        """Train all jobs at once."""
        batches = np.stack([job.batches for job in jobs])
        _, steps, images = batches.shape
        plan = self._plan("train", steps, images, len(jobs))
        arena, n = plan.arena, len(jobs)
        _place([job.start for job in jobs], arena.rows)
        plan.samples[:n] = _send(batches, arena.rows.device)
        arena.count.fill_(n)
        arena.lr.fill_(lr)
        plan.graph.replay()
        _write_updates(jobs, arena.rows, lr)

    def scores(
        self, models: Sequence[torch.Tensor], samples: torch.Tensor, test: bool
    ) -> torch.Tensor:
        """Return all scores at once."""
        n, images = samples.shape
        plan = self._plan("test" if test else "try", 1, images, n)
        _place(models, plan.arena.rows)
        plan.samples[:n, 0] = samples
        plan.arena.count.fill_(n)
        plan.graph.replay()
        return plan.scores[:n]

    def close(self) -> None:
        """Give back memory."""
        self.plans.clear()
        self.pool = None


class _Mapped:
    """Any module: clients in rows of a fixed number, all steps recorded as one graph."""

    def __init__(self, model: MappedModel, layout: Layout, dataset: Dataset, room: int) -> None:
        device = dataset.train_images.device
        self.model = model
        self.dataset = dataset
        self.rows = torch.zeros((room, layout.size), device=device)
        self.lr = torch.zeros((), device=device)
        self.plans: dict[tuple[str, int, int], _MappedPlan] = {}
        self.pool: Any = None

    def _plan(self, kind: str, steps: int, images: int) -> _MappedPlan:
        key = (kind, steps, images)
        if key not in self.plans:
            device, room = self.rows.device, len(self.rows)
            plan = _MappedPlan(
                torch.zeros((room, steps, images), dtype=torch.int64, device=device),
                torch.zeros((room, images, self.dataset.n_classes), device=device),
                torch.cuda.CUDAGraph(),
            )
            run = self._training if kind == "train" else self._scoring
            pictures = self.dataset.test_images if kind == "test" else self.dataset.train_images
            self.pool = _record(plan.graph, self.pool, device, lambda: run(plan, pictures))
            self.plans[key] = plan
        return self.plans[key]

    def _training(self, plan: _MappedPlan, pictures: torch.Tensor) -> None:
        for step in range(plan.samples.shape[1]):
            samples = plan.samples[:, step]
            labels = self.dataset.train_labels[samples]
            self.model.step(self.rows, pictures[samples], labels, self.lr)

    def _scoring(self, plan: _MappedPlan, pictures: torch.Tensor) -> None:
        plan.scores.copy_(self.model.scores(self.rows, pictures[plan.samples[:, 0]]))

    def train(self, jobs: Sequence[Job], lr: float) -> None:
        """Train the jobs; rows beyond them are trained too, on what lay there, and left."""
        batches = np.stack([job.batches for job in jobs])
        plan = self._plan("train", *batches.shape[1:])
        n = len(jobs)
        _place([job.start for job in jobs], self.rows)
        plan.samples[:n] = _send(batches, self.rows.device)
        self.lr.fill_(lr)
        plan.graph.replay()
        _write_updates(jobs, self.rows, lr)

    def scores(
        self, models: Sequence[torch.Tensor], samples: torch.Tensor, test: bool
    ) -> torch.Tensor:
        """Return all scores at once."""
        n, images = samples.shape
        plan = self._plan("test" if test else "try", 1, images)
        _place(models, self.rows)
        plan.samples[:n, 0] = samples
        plan.graph.replay()
        return plan.scores[:n]

    def close(self) -> None:
        """Give back memory."""
        self.plans.clear()
        self.pool = None


class _MappedPlan(NamedTuple):
    """A recorded graph and the memory it reads and writes besides the rows."""

    samples: torch.Tensor
    scores: torch.Tensor
    graph: torch.cuda.CUDAGraph


def _record(
    graph: torch.cuda.CUDAGraph, pool: Any, device: torch.device, run: Callable[[], None]
) -> Any:
    """Record what ``run`` does after doing it once; return the pool of memory it uses.

    The first time kernels are compiled and libraries set themselves up. Graphs run one after the
    other and may share memory.
    """
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        run()
    with torch.cuda.graph(graph, pool=pool, stream=stream):
        run()
    torch.cuda.current_stream(device).wait_stream(stream)
    return graph.pool()


def _write_updates(jobs: Sequence[Job], rows: torch.Tensor, lr: float) -> None:
    """Write `(w^0 - w^E) / η` of the first rows, equation (6)."""
    outs = [job.out for job in jobs]
    torch._foreach_copy_(outs, [job.start for job in jobs])
    torch._foreach_sub_(outs, list(rows[: len(jobs)].unbind()))
    torch._foreach_div_(outs, lr)


def _place(models: Sequence[torch.Tensor], rows: torch.Tensor) -> None:
    """Copy models into the first rows; clients of a round often share one."""
    if all(model is models[0] for model in models):
        rows[: len(models)] = models[0]
    else:
        torch._foreach_copy_(list(rows[: len(models)].unbind()), list(models))


def _send(numbers: npt.NDArray[np.int64], device: torch.device) -> torch.Tensor:
    """Copy to the GPU without waiting for it."""
    return torch.from_numpy(numbers).pin_memory().to(device, non_blocking=True)


Some = TypeVar("Some", list[Job], list[tuple[torch.Tensor, Indices]], Indices)


def _cut(work: Some, size: int) -> Iterator[Some]:
    for at in range(0, len(work), size):
        yield work[at : at + size]


@contextmanager
def _multiplying(precision: Precision) -> Iterator[None]:
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
