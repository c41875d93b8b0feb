"""A mean without the extremes of what arrived, number by number."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, final

from pydantic import Field

from freshband.federated.algorithms._robust import RobustMean
from freshband.federated.algorithms.base import register

if TYPE_CHECKING:
    import torch


@final
@register("trimmed")
class TrimmedMean(RobustMean):
    """A mean of each number without the largest and smallest ``trim`` of those that arrived.

    `⌈trim · |S_t|⌉` are left out at either end, but at least one number is kept. It uses more of
    what honest clients say than the median, and withstands fewer clients that lie.

    **Deviations.** The paper does not have it.

    Parameters
    ----------
    trim : float in [0, 0.5), default 0.2
        The share of the arrivals to leave out at each end.
    server_lr : float > 0, default 1
        The server's step `η_s`.

    Examples
    --------
    >>> import torch
    >>> TrimmedMean().middle(torch.tensor([[1.0], [2.0], [9e9], [3.0], [4.0]])).tolist()
    [3.0]

    References
    ----------
    Yin, Chen, Ramchandran, Bartlett, "Byzantine-robust distributed learning: towards optimal
    statistical rates", ICML 2018.
    """

    trim: Annotated[float, Field(ge=0, lt=0.5)] = 0.2

    def middle(self, updates: torch.Tensor) -> torch.Tensor:
        """Return the mean of the middle of each column."""
        n_updates = len(updates)
        cut = min(math.ceil(self.trim * n_updates), (n_updates - 1) // 2)
        return updates.sort(dim=0).values[cut : n_updates - cut].mean(dim=0)
