"""Equation (7) as printed, for study."""

from __future__ import annotations

from typing import final

import numpy as np

from freshband.federated.algorithms._weighted import Flags, Vector, WeightedMean
from freshband.federated.algorithms.base import register


@final
@register("literal")
class LiteralMean(WeightedMean):
    """Equation (7) as printed: `s_i = η_s ζ_i / |S|`, without the clients' step `η`.

    The step is `1/(M η)` times the mean local change: 5 times too long at M=20, η=0.01 (erratum
    E7).

    **Deviations.** None.

    Parameters
    ----------
    server_lr : float > 0, default 1
        The server's step `η_s`.

    Examples
    --------
    >>> LiteralMean().steps([0.5, 0.25, 0.25], [True, True, False], client_lr=0.4).tolist()
    [0.25, 0.125, 0.0]
    """

    def share(self, weights: Vector, arrived: Flags, client_lr: float) -> Vector:
        """Divide by the number of arrivals, and by `η`, which all steps are multiplied with."""
        return np.asarray(weights * arrived / (int(arrived.sum()) * client_lr))
