"""What the robust rules have in common: a middle of what arrived, taken number by number."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field

from freshband.federated.algorithms.base import Arrivals, Moved, Rule

if TYPE_CHECKING:
    import torch


class RobustMean(Rule, abc.ABC):
    """A middle of the updates that arrived, `w <- w - η_s η middle(G_i, i in S_t)`.

    Every client counts the same, and what a rule recalls of an update is its share of a plain mean.
    """

    server_lr: Annotated[float, Field(gt=0)] = 1.0

    @abc.abstractmethod
    def middle(self, updates: torch.Tensor) -> torch.Tensor:
        """Return the middle of at least one update, the rows of an array of shape (|S_t|, P)."""

    def apply(self, model: torch.Tensor, memory: Any, arrivals: Arrivals) -> Moved:
        """Move the model by the middle of what arrived."""
        import torch

        clients, step = arrivals.clients, self.server_lr * arrivals.client_lr
        if clients:
            rows = torch.stack([arrivals.updates[client] for client in clients])
            model.sub_(self.middle(rows), alpha=step)
        return np.where(arrivals.delivered, step / max(1, len(clients)), 0.0), 1
