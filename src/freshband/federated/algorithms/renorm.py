"""The paper's rule, repaired: the weighted mean of what arrived."""

from __future__ import annotations

from typing import final

import numpy as np

from freshband.federated.algorithms._weighted import Flags, Vector, WeightedMean
from freshband.federated.algorithms.base import register


@final
@register("renorm")
class Renorm(WeightedMean):
    """The weighted mean of what arrived: `s_i = η_s η ζ_i / Σ_{j in S} ζ_j`.

    **Deviations** (erratum E7). Equation (7) leaves out η although the proof uses it, and divides
    by `|S_t|` weights that sum to 1 over all M already. Here the weights of those that arrived are
    scaled to sum to 1.

    Parameters
    ----------
    server_lr : float > 0, default 1
        The server's step `η_s`.

    Examples
    --------
    >>> Renorm().steps([0.5, 0.25, 0.25], [True, True, False], client_lr=0.3).round(12).tolist()
    [0.2, 0.1, 0.0]
    """

    def share(self, weights: Vector, arrived: Flags, client_lr: float) -> Vector:
        """Scale the weights of those that arrived to 1; without any weight they count the same."""
        taken = weights * arrived
        total = taken.sum()
        return np.asarray(taken / total if total > 0 else arrived / arrived.sum())
