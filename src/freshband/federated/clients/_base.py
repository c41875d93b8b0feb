"""What local training is: jobs, how parameters lie in a row, and what every path must compute.

Every client's model is one row of numbers, so the updates of all clients are one matrix and the
server's algebra is a few products with it. A *path* is a way to run many clients' local training
at once. All paths compute the same result and differ only in speed.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from freshband.errors import ParameterError
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


@dataclasses.dataclass(frozen=True)
class Trial:
    """A model to be tried on a client's own samples."""

    model: torch.Tensor  # (P,)
    samples: Indices  # indices into the training set, at least one


@dataclasses.dataclass(frozen=True)
class ExamResult:
    """How a model does on the test set."""

    loss: float  # mean cross-entropy
    correct: Indices  # (n_classes,), correctly classified test samples of each class


class ParameterLayout:
    """Where each parameter of a module lies in a row of P numbers.

    Kernels of convolutions lie channels-last, (outputs, height, width, inputs), the order in which
    convolutions are fastest; everything else lies as its shape says.
    """

    def __init__(self, module: nn.Module) -> None:
        self.shapes = {name: tuple(p.shape) for name, p in module.named_parameters()}
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
        views = self.views(row)
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                views[name].copy_(parameter)
        return row

    def write(self, row: torch.Tensor, module: nn.Module) -> None:
        """Copy a row into a module's parameters."""
        module.load_state_dict(self.views(row), strict=False)  # tied parameters have two names

    def lend(self, row: torch.Tensor, module: nn.Module) -> None:
        """Make a module's parameters views of a row: writing one writes the other."""
        views = self.views(row)
        for name, parameter in module.named_parameters():
            parameter.data = views[name]


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
        """Return how many of its samples each trial's model classifies correctly."""
        ...

    def examine(self, model: torch.Tensor) -> ExamResult:
        """Try one model, shape (P,), on the whole test set."""
        ...

    def close(self) -> None:
        """Give back threads and memory."""
        ...


def check_trainable(module: nn.Module, shape: tuple[int, ...]) -> None:
    """Refuse modules whose training is more than their parameters and their samples."""
    buffers = [name for name, _ in module.named_buffers()]
    if buffers:
        raise ParameterError(
            f"model must keep nothing but parameters, {type(module).__name__} has the buffer "
            f"{buffers[0]!r}: how a stale update of it joins a newer model is undefined; use "
            "GroupNorm in place of BatchNorm"
        )
    frozen = [name for name, weights in module.named_parameters() if not weights.requires_grad]
    if frozen:
        raise ParameterError(
            f"model must train all its parameters, {frozen[0]!r} is frozen: put what stays as it "
            "is into the data"
        )
    random: tuple[Any, ...] = (nn.modules.dropout._DropoutNd, nn.RReLU)
    drawing = [
        f"layer {name!r} is a {type(part).__name__}"
        for name, part in module.named_modules()
        if isinstance(part, random) and getattr(part, "p", 1.0) > 0
    ]
    if not drawing and _draws(module, shape):  # by no layer, such as functional.dropout
        drawing = [f"{type(module).__name__} does in training"]
    if drawing:
        raise ParameterError(
            f"model must not draw random numbers, {drawing[0]}: clients train at the same time, "
            "and runs could not be repeated"
        )


def _draws(module: nn.Module, shape: tuple[int, ...]) -> bool:
    weights = next(module.parameters())
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        before = torch.get_rng_state()
        copy.deepcopy(module).train()(torch.zeros(2, *shape).to(weights))
        return not torch.equal(before, torch.get_rng_state())
