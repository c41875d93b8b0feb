"""Channels whose success rates never change."""

from __future__ import annotations

from typing import final

from freshband.channels._fields import RatedBand
from freshband.channels.base import register

__all__ = ["Stationary"]


@final
@register("stationary")
class Stationary(RatedBand):
    """Constant success rates, independent rounds.

    Channel k is Good in round t with probability `μ_k`, independently of everything else:
    the stationary regime of Sec. II-B.

    Parameters
    ----------
    n_channels : int >= 1, default 5
        Number of channels N; follows from ``means`` where those are given.
    mean_low, mean_high : float, 0 <= mean_low <= mean_high <= 1, default 0.1 and 0.9
        The means are drawn from U[mean_low, mean_high], once per run.
    means : list of float in [0, 1], optional
        The means `μ_k` themselves, one for each channel.

    Notes
    -----
    **Deviations.** The paper gives no means; U[.1, .9] is what our reproduction of Fig. 2 uses.

    Examples
    --------
    >>> from freshband.channels import Stationary, open_air
    >>> model = Stationary(means=[0.9, 0.5, 0.0])
    >>> block = open_air(model, rounds=10_000, seed=0).block(10_000)
    >>> block.states.mean(axis=0).round(1).tolist()
    [0.9, 0.5, 0.0]
    """
