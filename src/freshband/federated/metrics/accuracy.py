"""The share of right answers."""

from __future__ import annotations

from typing import final

import torch

from freshband.federated.metrics.base import register
from freshband.parameters import Parameters


@final
@register("accuracy")
class Accuracy(Parameters):
    """The share of targets whose class has the highest score: the default for data with classes.

    Scores of classes are the last dimension. Targets of -100 are left out.

    Examples
    --------
    >>> Accuracy()(torch.eye(3), torch.tensor([0, 1, 1]))
    0.666...
    """

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> float:
        """Return the share over all targets."""
        counted = targets != -100
        right = (outputs.argmax(dim=-1) == targets) & counted
        return int(right.sum()) / max(int(counted.sum()), 1)
