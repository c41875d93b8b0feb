"""Your own server rule in one file: the coordinate-wise median of the updates that arrived.

freshband --import examples/my_rule.py train --algorithm median --set algorithm.server_lr=0.5
"""

from typing import Annotated, Any, final

import numpy as np
import torch
from pydantic import Field

from freshband.federated.algorithms import Arrivals, Moved, Rule, register

__all__ = ["Median"]


@register("median")
@final
class Median(Rule):
    """Move by the coordinate-wise median of the updates: `w <- w - η_s η median_i G_i`.

    A few broken or malicious clients cannot pull the model far away.

    Parameters
    ----------
    server_lr : float > 0, default 1
        The server's step `η_s`.

    Notes
    -----
    **Deviations.** Not in the paper.

    Examples
    --------
    >>> from freshband.federated import Federation, Training
    >>> settings = Training(model="mlp", clients=4, rounds=5)
    >>> with Federation(settings, algorithm=Median(server_lr=0.5)) as run:
    ...     len(list(run))
    5

    References
    ----------
    Yin et al., "Byzantine-robust distributed learning: towards optimal statistical rates", ICML
    2018.
    """

    server_lr: Annotated[float, Field(gt=0)] = 1.0

    def apply(self, model: torch.Tensor, memory: Any, arrivals: Arrivals) -> Moved:
        """Move the model in place; return each update's step and the number of new versions."""
        step = self.server_lr * arrivals.client_lr
        if arrivals.clients:
            rows = torch.stack([arrivals.updates[client] for client in arrivals.clients])
            model.sub_(rows.median(dim=0).values, alpha=step)
        return np.where(arrivals.delivered, step, 0.0), 1
