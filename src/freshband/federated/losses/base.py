"""What a loss is: the number a client's steps make smaller, and the registry of losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch

from freshband._registry import Registry
from freshband.errors import ParameterError, shown

__all__ = ["Loss", "LossSpec", "build_loss", "register", "registry"]

Loss: TypeAlias = Callable[[Any, torch.Tensor], torch.Tensor]


@runtime_checkable
class LossSpec(Protocol):
    """A loss: a frozen `freshband.parameters.Parameters` that can be called."""

    def __call__(self, outputs: Any, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of a batch, from what the module returned, as one number."""
        ...


registry: Registry[type[LossSpec]] = Registry("loss", "freshband.federated.losses")
register = registry.register


def build_loss(loss: str | Loss, **params: object) -> Loss:
    """Return a loss by name; a function of outputs and targets is returned as it is.

    Examples
    --------
    >>> build_loss("mse")(torch.tensor([[1.0], [3.0]]), torch.tensor([1.0, 1.0]))
    tensor(2.)
    """
    wanted = "loss must be a name or a function of outputs and targets"
    if isinstance(loss, type) and issubclass(loss, torch.nn.Module):
        raise ParameterError(f"{wanted}, got {shown(loss)}; make one with {loss.__name__}()")
    found: Loss = registry.make(loss, params, Callable, wanted)
    return found


def scores_of(outputs: Any) -> torch.Tensor:
    """Return the tensor in what a module returned: itself, its ``logits``, or the first."""
    found = getattr(outputs, "logits", outputs)
    found = found[0] if isinstance(found, tuple | list) and found else found
    if isinstance(found, dict):
        found = found.get("logits", next(iter(found.values()), None))
    if not isinstance(found, torch.Tensor):
        raise TypeError(f"a model must return a tensor, got {type(outputs).__name__}")
    return found


def paired(returned: Any, targets: torch.Tensor) -> torch.Tensor:
    """Return outputs in the shape of targets; a last dimension of one number may be left out."""
    outputs = scores_of(returned)
    if outputs.shape == (*targets.shape, 1):
        outputs = outputs.squeeze(-1)
    if outputs.shape != targets.shape:
        raise ParameterError(
            f"outputs must have the shape of targets, {tuple(targets.shape)}, got "
            f"{tuple(outputs.shape)}"
        )
    return outputs
