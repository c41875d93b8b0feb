"""What each client is worth, from what the server received: equations (33) to (35) and (43)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from freshband.errors import ParameterError
from freshband.federated._state import Pending
from freshband.federated.contribution import (
    ValuationOptions,
    _client_weights,
    _fill_unheard,
    fedce_contributions,
)
from freshband.federated.leaving_out import _models_without, distances_to_rest


@dataclasses.dataclass(eq=False)
class Valuation:
    """Keeps every client's last gradient and error, and values the clients by them.

    ``client_lr`` is `η`, which turns the way a client went into a gradient; ``rule`` is how
    contributions are computed, ``options`` what else decides them, and with ``weigh`` clients also
    weigh by contribution in the aggregation (43).
    """

    n_clients: int
    client_lr: float
    rule: Literal["paper", "fedce"] = dataclasses.field(default="paper", kw_only=True)
    weigh: bool = dataclasses.field(default=False, kw_only=True)
    options: ValuationOptions = dataclasses.field(default=ValuationOptions(), kw_only=True)

    def __post_init__(self) -> None:
        if self.rule not in ("paper", "fedce"):
            raise ParameterError(f"rule must be 'paper' or 'fedce', got {self.rule!r}")
        self.contributions: NDArray[np.float64] = np.ones(self.n_clients)  # `C` (33)
        self.errors: NDArray[np.float64] = np.ones(self.n_clients)  # last reported (35)
        self.heard: NDArray[np.bool_] = np.zeros(self.n_clients, np.bool_)
        self.worth: NDArray[np.float64] = np.zeros(self.n_clients)  # FedCE's sum over rounds
        # (M, P), last received of each client; no rows of models where clients keep their own
        self.gradients = self.models = torch.zeros(0, 0)

    def open(self, model: torch.Tensor, *, keeps_models: bool) -> None:
        """Allocate rows like the model for what clients will send."""
        self.gradients = model.new_zeros(self.n_clients, len(model))
        self.models = model.new_zeros(self.n_clients if keeps_models else 0, len(model))

    def models_without(
        self, model: torch.Tensor, weights: NDArray[np.float64], who: NDArray[np.int64]
    ) -> torch.Tensor:
        """Return the model without each of the clients ``who`` (42), shape (len(who), P)."""
        return _models_without(model, self.models, weights, self.heard, who, self.options.loo)

    def take(
        self, round: int, delivered: Mapping[int, Pending], weights: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Value the clients by what got through; return the weights `ζ` of the next round."""
        for client, sent in delivered.items():
            self.gradients[client].copy_(sent.update)
            if len(self.models) and sent.trained is not None:
                self.models[client].copy_(sent.trained)
            self.heard[client] = True
            if not math.isnan(sent.error):
                self.errors[client] = sent.error
        distances = distances_to_rest(self.gradients, weights, self.options.loo)
        if self.rule == "fedce":
            self.worth += fedce_contributions(distances, self.errors, self.heard)
            worth = self.worth / round
        else:
            worth = distances * self.errors
        self.contributions = _fill_unheard(worth, self.heard, self.options.cold_start)
        return _client_weights(self.contributions) if self.weigh else weights

    def to_tensors(self) -> dict[str, torch.Tensor]:
        """Return what must be saved with the run, as views of the present state."""
        names = ("errors", "heard", "contributions", "worth")
        arrays = {f"arrays.{name}": torch.from_numpy(getattr(self, name)) for name in names}
        return {"gradients": self.gradients, "models": self.models, **arrays}
