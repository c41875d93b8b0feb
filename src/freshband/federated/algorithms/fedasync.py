"""FedAsync: the models of clients are mixed in one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, final

import numpy as np
from pydantic import Field

from freshband.federated.algorithms._discounted import Discounted
from freshband.federated.algorithms.base import Arrivals, Moved, register

if TYPE_CHECKING:
    import torch


@final
@register("fedasync")
class FedAsync(Discounted):
    """Each client's model is mixed in: `w <- (1 - α d) w + α d w_i`, in the order of clients.

    Parameters
    ----------
    mixing : float in (0, 1], default 0.6
        How far the model moves towards a fresh client's, `α`.
    staleness : {"constant", "polynomial", "hinge"}, default "polynomial"
        The form of the discount `d` of stale models, as in `Discounted`.
    staleness_a : float > 0, default 0.5
        A parameter of ``polynomial`` and ``hinge``.
    staleness_b : float >= 0, default 4
        A parameter of ``hinge``.

    Notes
    -----
    **Deviations.** Updates that arrive in the same round are mixed in in the order of clients.

    Examples
    --------
    >>> FedAsync(mixing=0.5).needs_models
    True

    References
    ----------
    Xie, Koyejo, Gupta, "Asynchronous federated optimization", 2019.
    """

    mixing: Annotated[float, Field(gt=0, le=1)] = 0.6

    @property
    def needs_models(self) -> bool:
        """Models are mixed, not updates."""
        return True

    def apply(self, model: torch.Tensor, memory: Any, arrivals: Arrivals) -> Moved:
        """Mix the models in one by one."""
        shares = self.mixing * self.discount(arrivals.staleness)
        shares = np.where(arrivals.delivered, shares, 0.0)
        for client in arrivals.clients:
            model.lerp_(arrivals.models[client], float(shares[client]))
        return shares, 1
