"""What an optimiser is: how a client makes its steps, and the registry of optimisers.

Every client begins with a new optimiser whenever it begins from a model, so there is no state to
keep between rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, Protocol, TypeAlias, runtime_checkable

import torch
from pydantic import Field

from freshband._registry import Registry
from freshband.errors import ParameterError, shown
from freshband.parameters import Parameters

__all__ = ["Optimiser", "OptimiserSpec", "Steps", "build_optimiser", "register", "registry"]


class Steps(Protocol):
    """What makes the steps of one client: any `torch.optim.Optimizer`."""

    def step(self) -> Any:
        """Change the parameters by their ``grad``."""
        ...


Optimiser: TypeAlias = Callable[[list[torch.Tensor]], Steps]


@runtime_checkable
class OptimiserSpec(Protocol):
    """An optimiser: a frozen `freshband.parameters.Parameters` that makes the steps of a client."""

    def build(self, parameters: list[torch.Tensor], lr: float) -> Steps:
        """Return a new optimiser of these parameters with the step ``lr``."""
        ...


class Scheduled(Parameters):
    """What the package's optimisers have in common: a schedule of the step, and clipping."""

    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup: Annotated[int, Field(ge=0)] = 0
    clip: Annotated[float, Field(gt=0)] | None = None

    def rate(self, round: int, rounds: int) -> float:
        """Return what ``client_lr`` is multiplied with in a round, counted from 1."""
        rising = min(1.0, round / (self.warmup + 1))
        done = max(0.0, (round - 1 - self.warmup) / max(rounds - self.warmup, 1))
        if self.schedule == "linear":
            return rising * (1.0 - done)
        return rising * (0.5 * (1.0 + math.cos(math.pi * done)) if self.schedule == "cosine" else 1)


registry: Registry[type[OptimiserSpec]] = Registry("optimiser", "freshband.federated.optimisers")
register = registry.register


class _Given:
    """A function of the user's own in the place of a registered optimiser."""

    def __init__(self, make: Optimiser) -> None:
        self.make = make

    def build(self, parameters: list[torch.Tensor], lr: float) -> Steps:
        if isinstance(self.make, type):  # a class of torch.optim, which has a parameter lr
            kind: Any = self.make
            made = kind(parameters, lr=lr)
        else:
            made = self.make(parameters)
        if not callable(getattr(made, "step", None)):
            raise ParameterError(
                f"optimiser must return an object with a method step, such as torch.optim.Adam, "
                f"got {shown(made)}"
            )
        steps: Steps = made
        return steps


def build_optimiser(optimiser: str | OptimiserSpec | Optimiser, **params: object) -> OptimiserSpec:
    """Return an optimiser by name, or one that calls a function of the user's own.

    Parameters
    ----------
    optimiser : str, OptimiserSpec, a class of torch.optim, or callable
        A function is given the list of a client's parameters and returns a torch optimiser.

    Examples
    --------
    >>> weights = [torch.ones(2, requires_grad=True)]
    >>> type(build_optimiser(torch.optim.Adam).build(weights, 0.01)).__name__
    'Adam'
    """
    example = "lambda parameters: torch.optim.Adam(parameters, lr=0.001)"
    if isinstance(optimiser, torch.optim.Optimizer):
        raise ParameterError(
            f"optimiser must be a name or a function, got a ready {type(optimiser).__name__}: "
            f"every client needs one of its own, give {example}"
        )
    wanted = f"optimiser must be a name or a function such as {example}"
    if isinstance(optimiser, type):
        if not issubclass(optimiser, torch.optim.Optimizer):
            raise ParameterError(f"{wanted}, got {shown(optimiser)}; give an object, not its class")
        found: Any = optimiser
    else:
        found = registry.make(optimiser, params, OptimiserSpec | Callable, wanted)
    return found if isinstance(found, OptimiserSpec) else _Given(found)


def clip_gradients(parameters: Sequence[torch.Tensor], longest: float | None) -> None:
    """Shorten the gradient of all parameters together to this length, if it is longer."""
    if longest is not None:
        torch.nn.utils.clip_grad_norm_(parameters, longest)
