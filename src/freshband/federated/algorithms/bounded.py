"""A mean of updates that are all about equally long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, final

from pydantic import Field

from freshband.federated.algorithms._robust import RobustMean
from freshband.federated.algorithms.base import register

if TYPE_CHECKING:
    import torch


@final
@register("bounded")
class BoundedMean(RobustMean):
    """A mean of updates none of which is longer than ``bound`` times the median length.

    Longer ones are shortened. A client can pull the model in any direction, but no further than
    others do.

    **Deviations.** The paper does not have it.

    Parameters
    ----------
    bound : float > 0, default 1
        The greatest length, in multiples of the median length of the round's arrivals.
    server_lr : float > 0, default 1
        The server's step `η_s`.

    Examples
    --------
    >>> import torch
    >>> BoundedMean().middle(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 400.0]])).tolist()
    [0.3333..., 0.6666...]

    References
    ----------
    Sun, Kairouz, Suresh, McMahan, "Can you really backdoor federated learning?", 2019.
    """

    bound: Annotated[float, Field(gt=0)] = 1.0

    def middle(self, updates: torch.Tensor) -> torch.Tensor:
        """Return the mean of the shortened updates."""
        lengths = updates.norm(dim=1)
        longest = self.bound * lengths.sort().values[(len(lengths) - 1) // 2]
        shares = (longest / lengths.clamp(min=1e-30)).clamp(max=1.0)
        shortened: torch.Tensor = updates * shares[:, None]
        return shortened.mean(dim=0)
