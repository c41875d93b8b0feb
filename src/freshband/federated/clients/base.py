"""What training on the clients is: jobs, how parameters lie in a row, and the contract of a path.

Every client's model is one row of numbers, so updates of all clients are one matrix and the
server's algebra is a few products with it. A *path* is a way to run many clients' local training
at once; all paths compute the same thing and differ in speed alone.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from freshband.errors import ParameterError
from freshband.federated.data.base import Dataset

__all__ = ["Exam", "ExamResult", "Job", "Layout", "LocalTraining", "Trial", "check_trainable"]

Indices: TypeAlias = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Job:
    """One client's local training: E steps of stochastic gradient descent, equation (5).

    Attributes
    ----------
    start : tensor, shape (P,)
        The model it begins from, `w^0`. Only read; jobs may share it.
    batches : ndarray of int64, shape (E, B)
        Training samples of every step.
    out : tensor, shape (P,)
        Receives the update `(w^0 - w^E) / η` of equation (6).
    """

    start: torch.Tensor
    batches: Indices
    out: torch.Tensor


@dataclasses.dataclass(frozen=True)
class Trial:
    """A model to be tried on a client's own samples.

    Attributes
    ----------
    model : tensor, shape (P,)
    samples : ndarray of int64
        Training-set indices, at least one.
    """

    model: torch.Tensor
    samples: Indices


@dataclasses.dataclass(frozen=True)
class ExamResult:
    """How a model does on the test set.

    Attributes
    ----------
    loss : float
        Mean cross-entropy.
    correct : ndarray of int64, shape (n_classes,)
        Test samples of each class that were classified rightly.
    """

    loss: float
    correct: npt.NDArray[np.int64]


class Layout:
    """Where each parameter of a module lies in a row of P numbers.

    Kernels of convolutions lie channels-last, (outputs, height, width, inputs), the order the
    fastest convolutions read; everything else lies as its shape says.

    Examples
    --------
    >>> layout = Layout(nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(12, 5)))
    >>> layout.size
    122
    >>> {name: tuple(view.shape) for name, view in layout.views(torch.zeros(4, 122)).items()}
    {'0.weight': (4, 3, 2, 3, 3), '0.bias': (4, 3), '2.weight': (4, 5, 12), '2.bias': (4, 5)}
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
        views = self.views(row)
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                parameter.copy_(views[name])

    def lend(self, row: torch.Tensor, module: nn.Module) -> None:
        """Make a module's parameters views of a row: writing one writes the other."""
        views = self.views(row)
        for name, parameter in module.named_parameters():
            parameter.data = views[name]


class Exam:
    """The test set cut into pieces of a fixed size, so that no count of workers changes a sum."""

    def __init__(self, dataset: Dataset, piece: int = 250) -> None:
        self.dataset = dataset
        self.pieces = [
            slice(at, min(at + piece, dataset.n_test)) for at in range(0, dataset.n_test, piece)
        ]

    def gather(self, answers: Iterator[tuple[torch.Tensor, torch.Tensor]]) -> ExamResult:
        """Add up (summed loss, correct per class) of every piece, in order."""
        loss, correct = 0.0, np.zeros(self.dataset.n_classes, np.int64)
        for lost, right in answers:
            loss += float(lost)
            correct += right.cpu().numpy()
        return ExamResult(loss / self.dataset.n_test, correct)

    def mark(self, scores: torch.Tensor, piece: slice) -> tuple[torch.Tensor, torch.Tensor]:
        """Return summed loss and correct answers per class of one piece's scores."""
        labels = self.dataset.test_labels[piece]
        loss = nn.functional.cross_entropy(scores, labels, reduction="sum")
        right = labels[scores.argmax(dim=1) == labels]
        return loss, torch.bincount(right, minlength=self.dataset.n_classes)


class LocalTraining(Protocol):
    """A way to run many clients at once; built from a module, a data set on its device."""

    layout: Layout

    def train(self, jobs: Sequence[Job], lr: float) -> None:
        """Run the local training of all jobs, each ``lr`` = η, and fill their ``out``."""
        ...

    def count_correct(self, trials: Sequence[Trial]) -> npt.NDArray[np.int64]:
        """Return how many of its samples each trial's model classifies rightly."""
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
    for name, part in module.named_modules():
        if isinstance(part, random) and getattr(part, "p", 1.0) > 0:
            raise ParameterError(
                f"model must not draw random numbers, layer {name!r} is a {type(part).__name__}: "
                "clients train at the same time, and runs could not be repeated"
            )
    weights = next(module.parameters())
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        before = torch.get_rng_state()
        copy.deepcopy(module).train()(torch.zeros(2, *shape).to(weights))
        drawn = not torch.equal(before, torch.get_rng_state())
    if drawn:  # by no layer of its own, such as functional.dropout
        raise ParameterError(
            f"model must not draw random numbers, {type(module).__name__} does in training: "
            "clients train at the same time, and runs could not be repeated"
        )
