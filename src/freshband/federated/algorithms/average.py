"""A wrapper: hand out an average of recent models in place of the newest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from freshband.federated.algorithms.base import Arrivals, Moved, Wrapper, register

if TYPE_CHECKING:
    import torch


class _Memory(NamedTuple):
    """What the rule remembers, the average, and the number of models in it."""

    rule: Any
    average: torch.Tensor
    averaged: NDArray[np.int64]  # shape (1,)


@final
@register("average")
class Average(Wrapper):
    """Hand out an average of recent models; clients train on the newest, as without.

    The mean of a run's later models lies nearer to where they are going than the last one does,
    which is where the last few clients heard have pulled it. After t rounds model s counts in
    proportion to about `s^recency`; with 16 half of the weight lies on the last 4 % of the rounds
    and nine tenths on the last 13 %, however long the run will be.

    Parameters
    ----------
    rule : Rule
        The rule that moves the model.
    recency : int >= 0, default 16
        The power with which later models count more; 0 is the mean of all models.

    Notes
    -----
    **Deviations.** The paper does not have it.

    Examples
    --------
    >>> from freshband.federated.algorithms import build_algorithm
    >>> build_algorithm("average", {"recency": 0}).recency
    0

    References
    ----------
    Shamir, Zhang, "Stochastic gradient descent for non-smooth optimization: convergence results
    and optimal averaging schemes", ICML 2013: polynomial-decay averaging.
    """

    recency: Annotated[int, Field(ge=0)] = 16

    def start(self, model: torch.Tensor) -> _Memory:
        """Return what the rule remembers, and an average of no models."""
        return _Memory(self.rule.start(model), model.clone(), np.zeros(1, np.int64))

    def apply(self, model: torch.Tensor, memory: _Memory, arrivals: Arrivals) -> Moved:
        """Let the rule move the model, then mix the model into the average."""
        moved = self.rule.apply(model, memory.rule, arrivals)
        memory.averaged[0] += 1
        counted = int(memory.averaged[0])
        memory.average.lerp_(model, (self.recency + 1) / (self.recency + counted))
        return moved

    def serve(self, model: torch.Tensor, memory: _Memory) -> torch.Tensor:
        """Return the average."""
        return memory.average
