"""The median of what arrived, number by number."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from freshband.federated.algorithms._robust import RobustMean
from freshband.federated.algorithms.base import register

if TYPE_CHECKING:
    import torch


@final
@register("median")
class Median(RobustMean):
    """The median of the updates, number by number; of an even number, the mean of the middle two.

    Fewer than half of the arrivals of a round, whatever they hold, cannot move a number beyond
    those of the others. A round with one or two arrivals has no majority: there it is their mean.
    Where clients hold different data the median leaves out what only a few of them know.

    **Deviations.** The paper does not have it.

    Parameters
    ----------
    server_lr : float > 0, default 1
        The server's step `η_s`.

    Examples
    --------
    >>> import torch
    >>> Median().middle(torch.tensor([[1.0, 4.0], [2.0, -9e9], [3.0, 5.0]])).tolist()
    [2.0, 4.0]

    References
    ----------
    Yin, Chen, Ramchandran, Bartlett, "Byzantine-robust distributed learning: towards optimal
    statistical rates", ICML 2018.
    """

    def middle(self, updates: torch.Tensor) -> torch.Tensor:
        """Return the median of each column."""
        ordered, last = updates.sort(dim=0).values, len(updates) - 1
        return (ordered[last // 2] + ordered[(last + 1) // 2]) / 2
