"""Exp3.S: exponential weights of channels with sharing, tuned for a best set that changes."""

from __future__ import annotations

import math
from typing import final

from pydantic import Field

from freshband.schedulers._channel_weights import Weighted
from freshband.schedulers.base import register

_UNKNOWN = 10_000  # rounds, in a logarithm, where the horizon is not known


@register("exp3-s")
@final
class Exp3S(Weighted):
    """Exponential weights with sharing (Exp3.S), for arbitrary channels whose best set changes.

    The algorithm of `exp3-m` with the exploration that the authors prove for a best channel that
    changes S - 1 times.

    Parameters
    ----------
    gamma : float in (0, 1], "auto" or "anytime", default "anytime"
        Exploration γ. ``auto`` is `min(1, sqrt(N (S ln(N T) + e) / ((e-1) M T)))` and needs the
        horizon T; ``anytime`` uses the round t in place of T under the fraction.
    n_segments : int >= 1, default 6
        The number S of segments with different best sets that is assumed.
    share : as in `exp3-m`
        The share α of the total weight that is spread over all channels per round.
    discount : as in `exp3-m`
        The factor per round by which the historical means fade.

    Notes
    -----
    Assumes nothing of the channels except that they do not react to the choice, and that the best
    set seldom changes.

    **Deviations.** (1) M channels are played instead of one, as in `exp3-m`, and γ has M under the
    fraction; with M = 1 it is Exp3.S. (2) γ and α fall with the round by default, so that no
    horizon is needed; the T in `ln(N T)` is then 10,000. (3) Sharing takes its part of the total
    weight after the update, not before: a difference of the order of γ. (4) The last three of
    `exp3-m`.

    Examples
    --------
    >>> import freshband
    >>> result = freshband.simulate(
    ...     "piecewise", ["random", "exp3-s"], clients=2, rounds=4000, runs=3, progress=False
    ... )
    >>> chance, weights = result.regret.mean("run").values
    >>> bool(weights < chance)
    True

    References
    ----------
    Auer, Cesa-Bianchi, Freund, Schapire, "The nonstochastic multiarmed bandit problem", SIAM J.
    Comput. 2002 (Corollary 8.3).
    """

    n_segments: int = Field(default=6, ge=1)

    def hardness(self, n_clients: int, n_channels: int, horizon: int | None) -> float:
        """Return `S ln(N T) + e`."""
        return self.n_segments * math.log(n_channels * (horizon or _UNKNOWN)) + math.e
