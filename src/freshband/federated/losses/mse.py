"""The mean squared error."""

from __future__ import annotations

from typing import Any, final

import torch

from freshband.federated.losses.base import paired, register
from freshband.parameters import Parameters


@final
@register("mse")
class Mse(Parameters):
    """The mean squared difference of outputs and targets: the default for targets that are numbers.

    Examples
    --------
    >>> Mse()(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0]))
    tensor(2.)
    """

    def __call__(self, outputs: Any, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean over all targets."""
        return torch.nn.functional.mse_loss(paired(outputs, targets), targets)
