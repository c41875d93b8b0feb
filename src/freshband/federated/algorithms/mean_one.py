"""The step of the paper's Theorem 1."""

from __future__ import annotations

from typing import final

import numpy as np

from freshband.federated.algorithms._weighted import Flags, Vector, WeightedMean
from freshband.federated.algorithms.base import register


@final
@register("mean_one")
class MeanOne(WeightedMean):
    """Weights with mean 1 over all clients: `s_i = η_s η M ζ_i / |S|`.

    It keeps the `1/|S|` of equation (7), and equals the step of Theorem 1 where `ζ = 1/M`.

    **Deviations.** Equation (7) leaves out `η` and M (erratum E7).

    Parameters
    ----------
    server_lr : float > 0, default 1
        The server's step `η_s`.

    Examples
    --------
    >>> MeanOne().steps([0.5, 0.25, 0.25], [True, True, False], client_lr=0.4).round(12).tolist()
    [0.3, 0.15, 0.0]
    """

    def share(self, weights: Vector, arrived: Flags, client_lr: float) -> Vector:
        """Scale the weights of all clients to a mean of 1."""
        return np.asarray(weights * arrived * weights.size / int(arrived.sum()))
