"""Clients on a GPU: the whole of their local training is recorded once and then replayed.

A GPU does a small client's step in microseconds, if only it is told fast enough what to do. So all
steps of all clients are recorded as one CUDA graph, which takes no Python to run, with one of two
ways to lay clients side by side:

``kernels``
    Models of known layers (`freshband.federated.clients.gpu.layers`): one launch of a kernel of our
    own does a layer of all clients. A graph has room for a number of clients and serves fewer
    at a cost that shrinks with them.
``streams``
    Any other module: torch's own kernels, every client recorded by itself and replayed on one of
    a few streams, which the GPU overlaps.
"""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any, Literal, Protocol, TypeVar, final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from freshband.errors import ParameterError
from freshband.federated.clients.base import (
    ExamResult,
    Indices,
    ParameterLayout,
    TrainingJob,
    Trial,
)
from freshband.federated.clients.gpu.layers import Arena, Stack, stack
from freshband.federated.data.base import Dataset

__all__ = ["GraphedClients", "Precision", "Way"]

Precision = Literal["float32", "tf32", "bf16"]
Way = Literal["kernels", "streams"]

_TRIAL = 256  # most samples of a trial that one model of a batch is given
_EXAM = 1000  # and of the test set


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
    way : {"kernels", "streams"}, optional
        How clients are laid side by side; by default the first that can: "kernels" wants Triton,
        a precision below float32, and layers it knows.
    together : int >= 1, default 40
        Most clients in a batch; more are trained one batch after the other. It bounds memory, of
        which a client of cnn8 takes 40 MB and one of ResNet-18 300.

    Attributes
    ----------
    way : {"kernels", "streams"}
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
        together: int = 40,
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
        stacked = None
        if way != "streams" and precision != "float32" and importlib.util.find_spec("triton"):
            stacked = stack(module, self.layout, dataset.shape, dataset.mean, dataset.std)
        if way == "kernels" and stacked is None:
            raise ParameterError(
                f"way must be 'streams' for {type(module).__name__} in {precision}: 'kernels' "
                "wants Triton, tf32 or bf16, and layers that it knows"
            )
        self.way: Way = "streams" if stacked is None else "kernels"
        self._side: _Side
        if stacked is None:
            self._side = _Streams(module, self.layout, dataset, precision, min(together, 8))
        else:
            dtype = torch.bfloat16 if precision == "bf16" else torch.float32
            self._side = _Stacked(stacked, self.layout, dataset, dtype)
        self._together = together

    def train(self, jobs: Sequence[TrainingJob], lr: float) -> None:
        """Run the local training of all jobs; see `LocalTraining.train`."""
        with torch.cuda.device(self._device):
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
            yield self._side.scores([model for model, _ in some], at, test), at, real

    def close(self) -> None:
        """Give back the graphs and their memory."""
        self._side.close()


class _Side(Protocol):
    """A way to lay clients side by side."""

    def train(self, jobs: Sequence[TrainingJob], lr: float) -> None:
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

    def __init__(
        self, model: Stack, layout: ParameterLayout, dataset: Dataset, dtype: torch.dtype
    ) -> None:
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
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            run(plan, pictures)  # for no client: compiles the kernels
        with torch.cuda.graph(plan.graph, pool=self.pool, stream=stream):
            run(plan, pictures)
        self.pool = plan.graph.pool()  # graphs run one after the other and may share memory
        torch.cuda.current_stream(device).wait_stream(stream)
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

    def train(self, jobs: Sequence[TrainingJob], lr: float) -> None:
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
        outs = [job.out for job in jobs]
        torch._foreach_copy_(outs, [job.start for job in jobs])
        torch._foreach_sub_(outs, list(arena.rows[:n].unbind()))
        torch._foreach_div_(outs, lr)

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


class _Slot:
    """A stream, a row of parameters, and the graphs recorded for them."""

    def __init__(self, size: int, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)
        self.start = torch.zeros(size, device=device)
        self.row = torch.zeros(size, device=device)
        self.lr = torch.zeros((), device=device)
        self.samples: dict[tuple[str, int, int], torch.Tensor] = {}
        self.scores: dict[tuple[str, int, int], torch.Tensor] = {}
        self.graphs: dict[tuple[str, int, int], torch.cuda.CUDAGraph] = {}
        self.pool: Any = None


class _Streams:
    """Each client is a graph of torch's kernels on one of a few streams."""

    def __init__(
        self,
        module: nn.Module,
        layout: ParameterLayout,
        dataset: Dataset,
        precision: Precision,
        streams: int,
    ) -> None:
        self.module = module
        self.layout = layout
        self.dataset = dataset
        self.precision = precision
        self.dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self.device = dataset.train_images.device
        self.slots = [_Slot(layout.size, self.device) for _ in range(streams)]
        self.mean = torch.tensor(dataset.mean, device=self.device).reshape(-1, 1, 1)
        self.std = torch.tensor(dataset.std, device=self.device).reshape(-1, 1, 1)

    def _call(
        self, row: torch.Tensor, pictures: torch.Tensor, training: bool
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return scores and the parameters that made them, in the precision chosen."""
        parameters = {
            name: view.to(self.dtype).requires_grad_(training)
            for name, view in self.layout.views(row.detach()).items()
        }
        images = ((pictures.to(torch.float32) - self.mean) / self.std).to(self.dtype)
        images = images.contiguous(memory_format=torch.channels_last)
        self.module.train(training)
        scores = torch.func.functional_call(self.module, parameters, (images,))
        return scores.to(torch.float32), list(parameters.values())

    def _training(self, slot: _Slot, key: tuple[str, int, int]) -> None:
        slot.row.copy_(slot.start)
        views = list(self.layout.views(slot.row).values())
        for samples in slot.samples[key]:
            scores, parameters = self._call(
                slot.row, self.dataset.train_images[samples], training=True
            )
            loss = nn.functional.cross_entropy(scores, self.dataset.train_labels[samples])
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                for view, gradient in zip(views, gradients, strict=True):
                    view.sub_(gradient.to(torch.float32) * slot.lr)

    def _scoring(self, slot: _Slot, key: tuple[str, int, int]) -> None:
        test = key[0] == "test"
        pictures = self.dataset.test_images if test else self.dataset.train_images
        with torch.no_grad():
            scores, _ = self._call(slot.start, pictures[slot.samples[key][0]], training=False)
            slot.scores[key].copy_(scores)

    def _graph(self, slot: _Slot, key: tuple[str, int, int]) -> torch.cuda.CUDAGraph:
        if key not in slot.graphs:
            slot.samples[key] = torch.zeros(key[1:], dtype=torch.int64, device=self.device)
            slot.scores[key] = torch.zeros((key[2], self.dataset.n_classes), device=self.device)
            run = self._training if key[0] == "train" else self._scoring
            graph = torch.cuda.CUDAGraph()
            slot.stream.wait_stream(torch.cuda.current_stream(self.device))
            with _multiplying(self.precision):
                with torch.cuda.stream(slot.stream):
                    run(slot, key)  # libraries set themselves up
                with torch.cuda.graph(graph, pool=slot.pool, stream=slot.stream):
                    run(slot, key)
            slot.pool = graph.pool()
            slot.graphs[key] = graph
        return slot.graphs[key]

    def _share(
        self,
        key: tuple[str, int, int],
        starts: Sequence[torch.Tensor],
        samples: torch.Tensor,
        finish: Callable[[_Slot, int], object],
    ) -> None:
        """Replay a graph for every start, on one stream after the other."""
        slots = self.slots[: len(starts)]
        graphs = [self._graph(slot, key) for slot in slots]
        main = torch.cuda.current_stream(self.device)
        for slot in slots:
            slot.stream.wait_stream(main)
        for at, start in enumerate(starts):
            slot = slots[at % len(slots)]
            with torch.cuda.stream(slot.stream):
                slot.start.copy_(start)
                slot.samples[key].copy_(samples[at])
                graphs[at % len(slots)].replay()
                finish(slot, at)
        for slot in slots:
            main.wait_stream(slot.stream)

    def train(self, jobs: Sequence[TrainingJob], lr: float) -> None:
        """Train the jobs, a few at a time."""
        batches = np.stack([job.batches for job in jobs])
        for slot in self.slots:
            slot.lr.fill_(lr)

        def finish(slot: _Slot, at: int) -> None:
            torch.sub(slot.start, slot.row, out=jobs[at].out)
            jobs[at].out.div_(lr)

        _, steps, images = batches.shape
        starts = [job.start for job in jobs]
        self._share(("train", steps, images), starts, _send(batches, self.device), finish)

    def scores(
        self, models: Sequence[torch.Tensor], samples: torch.Tensor, test: bool
    ) -> torch.Tensor:
        """Return scores, those of a few models at a time."""
        n, images = samples.shape
        found = torch.empty((n, images, self.dataset.n_classes), device=self.device)
        key = ("test" if test else "try", 1, images)
        self._share(
            key, models, samples[:, None], lambda slot, at: found[at].copy_(slot.scores[key])
        )
        return found

    def close(self) -> None:
        """Give back memory."""
        self.slots.clear()


def _place(models: Sequence[torch.Tensor], rows: torch.Tensor) -> None:
    """Copy models into the first rows; clients of a round often share one."""
    if all(model is models[0] for model in models):
        rows[: len(models)] = models[0]
    else:
        torch._foreach_copy_(list(rows[: len(models)].unbind()), list(models))


def _send(numbers: npt.NDArray[np.int64], device: torch.device) -> torch.Tensor:
    """Copy to the GPU without waiting for it."""
    return torch.from_numpy(numbers).pin_memory().to(device, non_blocking=True)


Some = TypeVar("Some", list[TrainingJob], list[tuple[torch.Tensor, Indices]], Indices)


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
