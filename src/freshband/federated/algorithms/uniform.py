"""The plain mean of what arrived."""

from __future__ import annotations

from typing import final

import numpy as np

from freshband.federated.algorithms._weighted import Flags, Vector, WeightedMean
from freshband.federated.algorithms.base import register


@final
@register("uniform")
class Uniform(WeightedMean):
    """The plain mean of what arrived: `s_i = η_s η / |S|`, whatever the clients weigh.

    **Deviations.** The paper weighs updates.

    Parameters
    ----------
    server_lr : float > 0, default 1
        The server's step `η_s`.

    Examples
    --------
    >>> Uniform().steps([0.5, 0.25, 0.25], [True, True, False], client_lr=0.4).tolist()
    [0.2, 0.2, 0.0]
    """

    @property
    def weighs_updates(self) -> bool:
        """All count the same."""
        return False

    def share(self, weights: Vector, arrived: Flags, client_lr: float) -> Vector:
        """Give all that arrived the same share."""
        return np.asarray(arrived / int(arrived.sum()))
