"""Adam, and AdamW by its weight decay."""

from __future__ import annotations

from typing import Annotated, final

import torch
from pydantic import Field

from freshband.federated.optimisers.base import Scheduled, Steps, register

_Share = Annotated[float, Field(ge=0, lt=1)]


@final
@register("adam")
class Adam(Scheduled):
    """Steps of a length that the gradient's recent size does not change (Kingma and Ba, 2015).

    A client's update is the change of its model over the local steps, whatever made them. Choose a
    smaller ``client_lr`` than for ``sgd``, such as 0.001.

    Parameters
    ----------
    beta1 : float in [0, 1), default 0.9
        How slowly the mean gradient changes; it begins at 0 in every round.
    beta2 : float in [0, 1), default 0.999
        How slowly the mean square changes.
    eps : float > 0, default 1e-8
        Added to the root of the mean square.
    weight_decay : float >= 0, default 0
        The share of the weights, times the step, that is taken off them (AdamW, Loshchilov and
        Hutter, 2019).
    schedule : {"constant", "linear", "cosine"}, default "constant"
        How ``client_lr`` changes over the rounds of a run: not at all, or down to 0.
    warmup : int >= 0, default 0
        The number of rounds over which it rises from near 0 first.
    clip : float > 0, optional
        Longest gradient of a step; a longer one is shortened.

    Examples
    --------
    >>> weights = torch.ones(1, requires_grad=True)
    >>> weights.grad = torch.tensor([5.0])
    >>> _ = Adam().build([weights], lr=0.1).step()
    >>> weights
    tensor([0.9000], requires_grad=True)
    """

    beta1: _Share = 0.9
    beta2: _Share = 0.999
    eps: Annotated[float, Field(gt=0)] = 1e-8
    weight_decay: Annotated[float, Field(ge=0)] = 0.0

    def build(self, parameters: list[torch.Tensor], lr: float) -> Steps:
        """Return a new optimiser; see `OptimiserSpec.build`."""
        return torch.optim.AdamW(
            parameters,
            lr=lr,
            betas=(self.beta1, self.beta2),
            eps=self.eps,
            weight_decay=self.weight_decay,
        )
