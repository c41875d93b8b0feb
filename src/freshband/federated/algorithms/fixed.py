"""Each update counts with its own weight, whoever else is heard."""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from freshband.federated.algorithms.base import register
from freshband.federated.algorithms.weighted import WeightedMean

__all__ = ["Fixed"]


@final
@register("fixed")
class Fixed(WeightedMean):
    """Each update counts with its own weight: `s_i = η_s η ζ_i`, whoever else is heard.

    Clients that were not heard count as if they had changed nothing. Where few get through the
    model moves little, and a client heard alone cannot pull it to itself.

    Parameters
    ----------
    server_lr : float > 0, default 1
        The server's step `η_s`.

    Notes
    -----
    **Deviations.** The paper has equation (7), see `freshband.federated.algorithms.renorm`.

    Examples
    --------
    >>> Fixed().steps([0.5, 0.25, 0.25], [True, True, False], client_lr=0.4).tolist()
    [0.2, 0.1, 0.0]
    """

    def share(
        self, weights: NDArray[np.float64], arrived: NDArray[np.bool_], client_lr: float
    ) -> NDArray[np.float64]:
        """Take the weights as they are."""
        return weights * arrived
