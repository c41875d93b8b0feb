"""Exp3.M: exponential weights of channels, and sets of M drawn by dependent rounding."""

from __future__ import annotations

from typing import final

from freshband.schedulers._channel_weights import Weighted
from freshband.schedulers.base import register


@register("exp3-m")
@final
class Exp3M(Weighted):
    """Exponential weights of channels with M plays (Exp3.M) and sharing, for arbitrary channels.

    Chooses channel k with `p_k = M ((1-γ) w_k / W + γ/N)`, where weights that would give more than
    1 are cut, draws a set with these probabilities by dependent rounding, and for each outcome
    `x_k` sets `w_k <- w_k exp(M γ x_k / (N p_k))`, except for weights that were cut. Then every
    weight gains `e α / N` of the total.

    Parameters
    ----------
    gamma : float in (0, 1], "auto" or "anytime", default "anytime"
        Exploration γ. ``auto`` is `min(1, sqrt(N ln(N/M) / ((e-1) M T)))` and needs the horizon T;
        ``anytime`` uses the round t in place of T.
    share : float in [0, 1], "auto" or "anytime", default "anytime"
        The share α, to follow a best set that changes. ``auto`` is 1/T and needs the horizon;
        ``anytime`` is 1/t; 0 is Exp3.M as printed.
    discount : float in (0, 1) or None, default 0.99
        The factor per round by which the historical means fade that rank the chosen channels.

    Notes
    -----
    Assumes nothing of the channels except that they do not react to the choice. Unlike `m-exp3` it
    learns from every outcome and needs a weight per channel, not per set.

    **Deviations.** (1) γ falls with the round by default, so that no horizon is needed. (2) Exp3.M
    has no sharing; here it is that of Exp3.S. It takes its part of the total weight after the
    update. (3) Weights are kept as logarithms, and none counts less than e^-30 of the largest. (4)
    A round in which `+aa` acted was not drawn: its outcomes teach the means only. (5) A late
    outcome counts with the γ of the round in which it comes; one that is more than 62 rounds late
    teaches the means only, because the probability of its draw is forgotten.

    Examples
    --------
    >>> import freshband
    >>> result = freshband.simulate(
    ...     "piecewise", ["m-exp3", "exp3-m"], clients=2, rounds=4000, runs=3, progress=False
    ... )
    >>> sets, channels = result.regret.mean("run").values
    >>> bool(channels < sets)
    True

    References
    ----------
    Uchiya, Nakamura, Kudo, "Algorithms for adversarial bandit problems with multiple plays", ALT
    2010. Auer, Cesa-Bianchi, Freund, Schapire, "The nonstochastic multiarmed bandit problem", SIAM
    J. Comput. 2002 (sharing).
    """
