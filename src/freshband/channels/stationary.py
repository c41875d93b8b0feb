"""Channels whose success rates never change."""

from __future__ import annotations

from typing import final

from freshband.channels._fields import LinkBand, RatedBand
from freshband.channels.base import register


@final
@register("stationary")
class Stationary(RatedBand, LinkBand):
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
        The means `μ_k` themselves, one for each channel; with ``per_client`` a list of lists, a
        row for each client.
    per_client : bool, default False
        Whether links differ per client: a mean for each client and channel. The number of
        clients M follows from ``means`` where those are given.
    p_differ : float in [0, 1], default 1
        Probability that a link has means of its own; otherwise it has those of its channel, which
        are common to the clients. Drawn once per run; only with ``per_client``.
    offset_sd : float in [0, 10], default 0
        Standard deviation of an offset for each client, drawn once per run from a normal law. If
        positive, `logit μ_ik = logit μ_k + offset_i`, and ``p_differ`` must be left out; only with
        ``per_client``.

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
    >>> links = Stationary(means=[[0.9, 0.1], [0.2, 0.8]], per_client=True)
    >>> open_air(links, rounds=10, seed=0).block(10).means.shape
    (10, 2, 2)
    """
