"""Huber's loss."""

from __future__ import annotations

from typing import Annotated, Any, final

import torch
from pydantic import Field

from freshband.federated.losses.base import paired, register
from freshband.parameters import Parameters


@final
@register("huber")
class Huber(Parameters):
    """Squared for small errors and linear for large ones, so that outliers count less.

    Parameters
    ----------
    delta : float > 0, default 1
        The error at which it becomes linear.

    Examples
    --------
    >>> Huber(delta=1.0)(torch.tensor([0.0]), torch.tensor([3.0]))
    tensor(2.5000)
    """

    delta: Annotated[float, Field(gt=0)] = 1.0

    def __call__(self, outputs: Any, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean over all targets."""
        return torch.nn.functional.huber_loss(paired(outputs, targets), targets, delta=self.delta)
