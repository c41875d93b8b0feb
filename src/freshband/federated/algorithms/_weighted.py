"""What the weighted means have in common: the steps with which updates are taken.

An update is the gradient sum `G_i = (w^0 - w^E) / η` of equation (6). The server moves by

    w <- w - Σ_{i in S_t} s_i G_i,    s_i = η_s η x_i

and each rule has its own shares `x_i`, made from the weights `ζ` of all clients and the set `S_t`
of those whose update got through (erratum E7).
"""

from __future__ import annotations

import abc
import math
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from freshband.errors import ParameterError
from freshband.federated.algorithms.base import Arrivals, Moved, Rule

if TYPE_CHECKING:
    import torch

Vector: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]


class WeightedMean(Rule, abc.ABC):
    """A mean of what arrived, `w <- w - Σ s_i G_i`."""

    server_lr: Annotated[float, Field(gt=0)] = 1.0

    @property
    def weighs_updates(self) -> bool:
        """The shares are made from the weights."""
        return True

    @abc.abstractmethod
    def share(self, weights: Vector, arrived: Flags, client_lr: float) -> Vector:
        """Return the share of each update, 0 for those that did not arrive; some did."""

    def steps(self, weights: ArrayLike, delivered: ArrayLike, client_lr: float) -> Vector:
        """Return the step `s_i` with which each client's update is applied, 0 where none arrived.

        ``weights`` are `ζ`, summing to 1, ``delivered`` says who is in `S_t`, ``client_lr`` is `η`.
        """
        zeta = np.asarray(weights, dtype=np.float64)
        arrived = np.asarray(delivered, dtype=bool)
        if zeta.ndim != 1 or zeta.shape != arrived.shape:
            raise ParameterError(
                "weights and delivered must have one entry per client, got shapes "
                f"{zeta.shape} and {arrived.shape}"
            )
        if not (math.isfinite(client_lr) and client_lr > 0):
            raise ParameterError(f"client_lr must be a number > 0, got {client_lr!r}")
        if not arrived.any():
            return np.zeros(zeta.shape)
        share = self.share(zeta, arrived, client_lr)
        return np.asarray(self.server_lr * client_lr * share, dtype=np.float64)

    def apply(self, model: torch.Tensor, memory: Any, arrivals: Arrivals) -> Moved:
        """Take the mean of what arrived."""
        steps = self.steps(arrivals.weights, arrivals.delivered, arrivals.client_lr)
        for client in arrivals.clients:  # other rows may hold anything, NaN too
            model.sub_(arrivals.updates[client], alpha=float(steps[client]))
        return steps, 1
