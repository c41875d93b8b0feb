"""The coefficient of determination."""

from __future__ import annotations

from typing import final

import torch

from freshband.federated.losses.base import paired
from freshband.federated.metrics.base import register
from freshband.parameters import Parameters


@final
@register("r2")
class R2(Parameters):
    """R², the share of the targets' variance that is explained: the default for numbers.

    `R² = 1 − Σ (y − ŷ)² / Σ (y − ȳ)²`, which is 1 for a perfect model and 0 for one that always
    says the mean `ȳ`. Where all targets are equal it is 1 or 0.

    Examples
    --------
    >>> R2()(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.0, 4.0]))
    0.785...
    """

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> float:
        """Return R² over all targets."""
        wanted = targets.double()
        missed = float((paired(outputs, targets).double() - wanted).square().sum())
        spread = float((wanted - wanted.mean(dim=0)).square().sum())
        return 1.0 - missed / spread if spread > 0 else float(missed == 0)
