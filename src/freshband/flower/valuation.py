"""What each client is worth, from what the server received: equations (33) to (35) and (43)."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from freshband.errors import ParameterError
from freshband.federated.aggregation import client_weights
from freshband.federated.contribution import ColdStart, fedce_contributions, fill_unheard
from freshband.federated.leaving_out import distances_to_rest
from freshband.flower.aggregation import Arrival, to_row
from freshband.flower.wire import Arrays, widened

__all__ = ["Valuation"]


class Valuation:
    """Keeps every client's last gradient and error, and values the clients by them.

    Parameters
    ----------
    n_clients : int >= 1
        M.
    client_lr : float > 0
        `η`, which turns the way a client went into a gradient.
    rule : {"paper", "fedce"}, default "paper"
        How contributions are computed.
    cold_start : {"mean", "max", "zero"}, default "mean"
        The contribution of a client never heard.
    weigh : bool, default False
        Whether clients also weigh by contribution in the aggregation (43).
    """

    def __init__(
        self,
        n_clients: int,
        client_lr: float,
        *,
        rule: Literal["paper", "fedce"] = "paper",
        cold_start: ColdStart = "mean",
        weigh: bool = False,
    ) -> None:
        if rule not in ("paper", "fedce"):
            raise ParameterError(f"rule must be 'paper' or 'fedce', got {rule!r}")
        self.client_lr, self.rule, self.cold_start, self.weigh = client_lr, rule, cold_start, weigh
        self.contributions = np.ones(n_clients)
        self.errors = np.ones(n_clients)
        self.heard = np.zeros(n_clients, np.bool_)
        self._worth = np.zeros(n_clients)
        self._gradients: torch.Tensor | None = None

    def take(
        self, round: int, arrivals: list[Arrival], weights: NDArray[np.float64], model: Arrays
    ) -> NDArray[np.float64]:
        """Value the clients by what arrived; return the weights `ζ` of the next round."""
        if self._gradients is None:
            row = to_row(model)
            self._gradients = row.new_zeros(len(self.heard), len(row))
        for arrival in arrivals:
            way = torch.sub(to_row(arrival.start), to_row(arrival.update.arrays))
            self._gradients[arrival.client].copy_(way.div_(self.client_lr))
            self.heard[arrival.client] = True
            if not np.isnan(arrival.update.error):
                self.errors[arrival.client] = arrival.update.error
        distances = distances_to_rest(self._gradients, weights, "global_minus")
        if self.rule == "fedce":
            self._worth += fedce_contributions(distances, self.errors, self.heard)
            worth = self._worth / round
        else:
            worth = distances * self.errors
        self.contributions = fill_unheard(worth, self.heard, self.cold_start)
        return client_weights(self.contributions) if self.weigh else weights

    def memory(self) -> Arrays:
        """Return what must be saved with the run."""
        held = {
            "contributions": self.contributions,
            "errors": self.errors,
            "heard": self.heard,
            "worth": self._worth,
        }
        return held if self._gradients is None else held | {"gradients": self._gradients.numpy()}

    def restore(self, memory: Arrays) -> None:
        """Take back what `memory` returned."""
        self.contributions, self.errors = memory["contributions"], memory["errors"]
        self.heard, self._worth = memory["heard"], memory["worth"]
        if "gradients" in memory:
            self._gradients = torch.from_numpy(widened(memory["gradients"]).copy())
