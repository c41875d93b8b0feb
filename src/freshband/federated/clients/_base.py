"""What local training is: jobs, how parameters lie in a row, and what every path must compute.

Every client's model is one row of numbers, so the updates of all clients are one matrix and the
server's algebra is a few products with it. A *path* is a way to run many clients' local training
at once. All paths compute the same result and differ only in speed.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Generic, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from freshband.errors import FreshbandError, ParameterError, RuleError, reason
from freshband.federated.data.base import Dataset

_Tool = TypeVar("_Tool")
_Work = TypeVar("_Work")
_Found = TypeVar("_Found")
Indices: TypeAlias = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class TrainingJob:
    """One client's local training: E steps of stochastic gradient descent, equation (5)."""

    start: torch.Tensor  # (P,), the model w^0 it begins from; only read, and may be shared
    batches: Indices  # (E, B), the training samples of every step
    out: torch.Tensor  # (P,), receives the update (w^0 - w^E) / η of equation (6)
    round: int = 0
    client: int = -1  # -1 where nobody asked for it
    noise: int = 0  # the seed of what the model draws, such as dropout
    kept: torch.Tensor | None = None  # (L,), what stays with the client; it is written to


@dataclasses.dataclass(frozen=True)
class Trial:
    """A model to be tried on a client's own samples."""

    model: torch.Tensor  # (P,)
    samples: Indices  # indices into the training set, at least one
    kept: torch.Tensor | None = None  # (L,), what stays with the client
    round: int = 0
    client: int = -1  # whose samples they are; -1 where nobody asked for it


@dataclasses.dataclass(frozen=True)
class ExamResult:
    """How a model does on the test set."""

    loss: float  # mean over the test set, by default of the cross-entropy
    correct: Indices  # (n_classes,), correctly classified test samples of each class
    metric: float | None = None  # where it is another than the share of correct ones


class ParameterLayout:
    """Where each parameter of a module lies in a row of P numbers.

    Kernels of convolutions lie channels-last, (outputs, height, width, inputs), the order in which
    convolutions are fastest; everything else lies as its shape says. ``names`` chooses parameters
    and buffers, by default all parameters.
    """

    def __init__(self, module: nn.Module, names: Iterable[str] | None = None) -> None:
        parameters, buffers = dict(module.named_parameters()), dict(module.named_buffers())
        held = {**buffers, **parameters}
        chosen = parameters if names is None else names
        self.shapes = {name: tuple(held[name].shape) for name in chosen}
        self.buffers = [name for name in self.shapes if name not in parameters]
        self.size = sum(math.prod(shape) for shape in self.shapes.values())

    def views(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return each parameter, shape (..., *shape), as a view of rows of shape (..., P)."""
        if rows.shape[-1] != self.size:
            raise ParameterError(f"a model has {self.size} parameters, got {rows.shape[-1]}")
        found, at = {}, 0
        for name, shape in self.shapes.items():
            size = math.prod(shape)
            part = rows[..., at : at + size]
            at += size
            if len(shape) == 4 and shape[2:] != (1, 1):  # there the two orders are the same
                outputs, inputs, height, width = shape
                part = part.view(*rows.shape[:-1], outputs, height, width, inputs)
                found[name] = part.movedim(-1, -3)
            else:
                found[name] = part.view((*rows.shape[:-1], *shape))  # a scalar has no sizes
        return found

    def read(self, module: nn.Module) -> torch.Tensor:
        """Return a module's parameters as a new row, of a type that holds them all."""
        parameters = list(module.parameters())
        dtype = functools.reduce(torch.promote_types, (each.dtype for each in parameters))
        row = torch.empty(self.size, dtype=dtype, device=parameters[0].device)
        views, held = self.views(row), self._held(module)
        with torch.no_grad():
            for name, view in views.items():
                view.copy_(held[name])
        return row

    def write(self, row: torch.Tensor, module: nn.Module) -> None:
        """Copy a row into a module's parameters."""
        held = self._held(module)
        with torch.no_grad():
            for name, view in self.views(row).items():
                held[name].copy_(view)

    def lend(self, row: torch.Tensor, module: nn.Module) -> None:
        """Make a module's parameters views of a row: writing one writes the other."""
        views = self.views(row)
        for name, parameter in module.named_parameters():
            if name in views:
                parameter.data = views[name]

    def _held(self, module: nn.Module) -> dict[str, torch.Tensor]:
        return {**dict(module.named_buffers()), **dict(module.named_parameters())}


class Crew(Generic[_Tool]):
    """Does pieces of work at the same time, on threads that each have their own tool.

    Torch releases Python's lock while it computes, so threads use all cores. Each has one torch
    thread, because several on one small piece slow each other down. The result of a piece must not
    depend on the tool it gets.
    """

    def __init__(self, workers: int, make_tool: Callable[[], _Tool]) -> None:
        self._own = threading.local()

        def begin() -> None:
            torch.set_num_threads(1)
            self._own.tool = make_tool()

        self._pool = ThreadPoolExecutor(workers, "client", initializer=begin)

    def share(
        self, work: Sequence[_Work], do: Callable[[_Tool, _Work], _Found]
    ) -> Iterator[_Found]:
        """Yield ``do(tool, piece)`` for every piece, in order."""
        return self._pool.map(lambda piece: do(self._own.tool, piece), work)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread: sums over several depend on how they were split."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Exam:
    """The test set in pieces of a fixed size, so that the number of workers changes no sum."""

    def __init__(self, dataset: Dataset, piece: int = 250) -> None:
        self.dataset = dataset
        self._pieces = [slice(at, at + piece) for at in range(0, dataset.n_test, piece)]

    def hold(
        self, crew: Crew[_Tool], scores_of: Callable[[_Tool, torch.Tensor], torch.Tensor]
    ) -> ExamResult:
        """Let a crew compute the scores of every piece's images, and add up in order."""

        def mark(tool: _Tool, piece: slice) -> tuple[torch.Tensor, torch.Tensor]:
            labels = self.dataset.test_labels[piece]
            with torch.no_grad():
                scores = scores_of(tool, self.dataset.test_images[piece])
                loss = nn.functional.cross_entropy(scores, labels, reduction="sum")
            right = labels[scores.argmax(dim=1) == labels]
            return loss, torch.bincount(right, minlength=self.dataset.n_classes)

        loss, correct = 0.0, np.zeros(self.dataset.n_classes, np.int64)
        for lost, right in crew.share(self._pieces, mark):
            loss += float(lost)
            correct += right.cpu().numpy()
        return ExamResult(loss / self.dataset.n_test, correct)


class LocalTraining(Protocol):
    """A path: built from a module and a data set on the device to train on."""

    layout: ParameterLayout

    def train(self, jobs: Sequence[TrainingJob], lr: float) -> None:
        """Run the local training of all jobs with the step ``lr`` = η, and fill their ``out``."""
        ...

    def count_correct(self, trials: Sequence[Trial]) -> Indices:
        """Return how many of its samples each trial's model classifies correctly.

        With another metric: the metric times the number of samples.
        """
        ...

    def examine(self, model: torch.Tensor) -> ExamResult:
        """Try one model, shape (P,), on the whole test set."""
        ...

    def close(self) -> None:
        """Give back threads and memory."""
        ...


@contextmanager
def naming(jobs: Sequence[TrainingJob | Trial]) -> Iterator[None]:
    """Add round and client to whatever a user's model, loss, optimiser or metric raises."""
    try:
        yield
    except Exception as error:
        if not jobs or jobs[0].client < 0:
            raise
        who = ", ".join(str(job.client) for job in jobs)
        raise RuleError(
            f"client{'s' * (len(jobs) > 1)} {who} in round {jobs[0].round}: {_told(error)}"
        ) from error


@contextmanager
def evaluating(round: int) -> Iterator[None]:
    """Add the round to whatever a user's model, loss or metric raises on the test set."""
    try:
        yield
    except RuleError:  # it names the round already
        raise
    except Exception as error:
        raise RuleError(f"evaluation in round {round}: {_told(error)}") from error


def _told(error: Exception) -> str:
    what = reason(error) or "no message"
    return what if isinstance(error, FreshbandError) else f"{type(error).__name__}: {what}"
