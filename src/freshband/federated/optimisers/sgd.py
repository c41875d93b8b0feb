"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Annotated, final

import torch
from pydantic import Field

from freshband.errors import ParameterError
from freshband.federated.optimisers.base import Scheduled, Steps, register


@final
@register("sgd")
class Sgd(Scheduled):
    """Stochastic gradient descent, equation (5) of the paper: the default.

    Parameters
    ----------
    momentum : float in [0, 1), default 0
        The share of the last step that is made again; it begins at 0 in every round.
    nesterov : bool, default False
        Whether gradients are looked up ahead of the momentum.
    weight_decay : float >= 0, default 0
        The share of the weights that is added to the gradient.
    schedule : {"constant", "linear", "cosine"}, default "constant"
        How ``client_lr`` changes over the rounds of a run: not at all, or down to 0.
    warmup : int >= 0, default 0
        The number of rounds over which it rises from near 0 first.
    clip : float > 0, optional
        Longest gradient of a step; a longer one is shortened.

    Examples
    --------
    >>> Sgd(momentum=0.9, schedule="cosine").rate(round=51, rounds=100)
    0.5...
    """

    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    nesterov: bool = False
    weight_decay: Annotated[float, Field(ge=0)] = 0.0

    def unused(self) -> dict[str, str]:
        """Return what has no effect: ``nesterov`` without momentum."""
        if self.nesterov and not self.momentum:
            return {"nesterov": "nesterov belongs to a momentum > 0, got momentum 0"}
        return {}

    def build(self, parameters: list[torch.Tensor], lr: float) -> Steps:
        """Return a new optimiser; see `OptimiserSpec.build`."""
        if lr < 0:
            raise ParameterError(f"lr must be >= 0, got {lr}")
        if not self.momentum and not self.weight_decay:
            return _Plain(parameters, lr)
        return torch.optim.SGD(
            parameters,
            lr=lr,
            momentum=self.momentum,
            nesterov=self.nesterov,
            weight_decay=self.weight_decay,
        )


class _Plain:
    """Steps against the gradient, without the bookkeeping of a torch optimiser."""

    def __init__(self, parameters: list[torch.Tensor], lr: float) -> None:
        self.parameters, self.lr = parameters, lr

    def step(self) -> None:
        gradients = [each.grad for each in self.parameters]
        with torch.no_grad():
            torch._foreach_add_(self.parameters, gradients, alpha=-self.lr)  # type: ignore[arg-type]  # lists too
