"""Each update counts with its own weight, whoever else is heard."""

from __future__ import annotations

from typing import final

from freshband.federated.algorithms._weighted import Flags, Vector, WeightedMean
from freshband.federated.algorithms.base import register


@final
@register("fixed")
class Fixed(WeightedMean):
    """Each update counts with its own weight: `s_i = η_s η ζ_i`, whoever else is heard.

    Clients that were not heard count as if they had changed nothing. Where few get through the
    model moves little, and a client heard alone cannot pull it to itself.

    **Deviations.** The paper has equation (7), see `renorm`.

    Parameters
    ----------
    server_lr : float > 0, default 1
        The server's step `η_s`.

    Examples
    --------
    >>> Fixed().steps([0.5, 0.25, 0.25], [True, True, False], client_lr=0.4).tolist()
    [0.2, 0.1, 0.0]
    """

    def share(self, weights: Vector, arrived: Flags, client_lr: float) -> Vector:
        """Take the weights as they are."""
        return weights * arrived
