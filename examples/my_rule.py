"""Your own server rule in one file: the middle of the range of the updates that arrived.

freshband --import examples/my_rule.py train --algorithm midrange --set algorithm.server_lr=0.5
"""

from typing import Annotated, Any, final

import numpy as np
import torch
from pydantic import Field

from freshband.federated.algorithms import Arrivals, Moved, Rule, register

__all__ = ["Midrange"]


@register("midrange")
@final
class Midrange(Rule):
    """Move by half the sum of the least and the largest update, coordinate by coordinate.

    Every client that arrives may decide: the opposite of robust, so use it where all are trusted.

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
    >>> with Federation(settings, algorithm=Midrange(server_lr=0.5)) as run:
    ...     len(list(run))
    5
    """

    server_lr: Annotated[float, Field(gt=0)] = 1.0

    def apply(self, model: torch.Tensor, memory: Any, arrivals: Arrivals) -> Moved:
        """Move the model in place; return each update's step and the number of new versions."""
        step = self.server_lr * arrivals.client_lr
        if arrivals.clients:
            rows = torch.stack([arrivals.updates[client] for client in arrivals.clients])
            model.sub_(rows.amin(dim=0) + rows.amax(dim=0), alpha=step / 2)
        return np.where(arrivals.delivered, step, 0.0), 1
