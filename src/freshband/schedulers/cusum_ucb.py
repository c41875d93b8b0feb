"""CUSUM-UCB: UCB that forgets a channel when a CUSUM test finds that it changed."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal, final

from pydantic import Field

from freshband.detectors.cusum import Cusum
from freshband.schedulers.base import Presets, _needed_horizon, register
from freshband.schedulers.restarting import Restarting


@register("cusum-ucb")
@final
class CusumUcb(Restarting):
    """CUSUM-UCB: a two-sided CUSUM test on every channel; an alarm forgets that channel alone.

    Plays the M largest of `mean_k + sqrt(c ln t / D_k)` and explores a share α of the rounds.

    Parameters
    ----------
    warm_up : int >= 1, default 50
        The number of outcomes from which the mean before a change is estimated.
    drift : float in (0, 1), default 0.1
        ε: changes of the mean smaller than this are not looked for.
    threshold : float > 0 or "published", default 8.0
        The threshold h. ``published`` is `ln(T / changes)` and needs the horizon T.
    alpha : float in [0, 1] or "published", default 0.02
        The share of forced exploration. ``published`` is `sqrt(changes ln(T / changes) / T)` and
        needs the horizon T.
    n_segments : int >= 2, default 6
        The number of stationary segments assumed by ``published``, one more than that of changes.
    restart : {"global", "local", "localised"}, default "local"
        What an alarm resets, as in `glr-cucb`.
    index_c : float > 0, default 1.0
        The width `c` of the UCB bonus, the authors' ξ; only with ``index="ucb"``.
    index, channel_key : as in `glr-cucb`
        The index played between changes, and how the chosen channels are ranked.

    Notes
    -----
    Assumes long segments and changes larger than ε, one channel at a time: what is known of other
    channels is kept.

    **Deviations.** (1) M channels are played instead of one: those of the largest indices. (2) A
    round explores not at random but in sweeps through all channels, which take the same share of
    the rounds; a swept channel takes the place of the one with the lowest index. (3) The bonus has
    `ln t` where the authors have the logarithm of the number of outcomes not forgotten.

    Examples
    --------
    >>> import freshband
    >>> result = freshband.simulate(
    ...     "piecewise", ["cucb", "cusum-ucb"], clients=2, rounds=4000, runs=3, progress=False
    ... )
    >>> never, restarts = result.regret.mean("run").values
    >>> bool(restarts < never)
    True

    References
    ----------
    Liu, Lee, Shroff, "A change-detection based framework for piecewise-stationary multi-armed
    bandit problem", AAAI 2018.
    """

    presets: ClassVar[Presets] = {"published": {"threshold": "published", "alpha": "published"}}

    index_c: float = Field(default=1.0, gt=0)
    warm_up: int = Field(default=50, ge=1)
    drift: float = Field(default=0.1, gt=0, lt=1)
    threshold: Annotated[float, Field(gt=0)] | Literal["published"] = 8.0
    alpha: Annotated[float, Field(ge=0, le=1)] | Literal["published"] = 0.02
    n_segments: int = Field(default=6, ge=2)
    restart: Literal["global", "local", "localised"] = "local"

    def restarts(self, n_channels: int, horizon: int | None) -> dict[str, Any]:
        """Return the detector, and when and what restarts."""
        limit, rate = self.threshold, self.alpha
        if limit == "published" or rate == "published":
            rounds = _needed_horizon(horizon, "cusum-ucb with 'published'")
            length = max(rounds / (self.n_segments - 1), math.e)  # rounds per change
            limit = math.log(length) if limit == "published" else limit
            rate = math.sqrt(math.log(length) / length) if rate == "published" else rate
        detector = Cusum(warm_up=self.warm_up, drift=self.drift, threshold=limit)
        return {"detector": detector.start(n_channels), "alpha": rate, "restart": self.restart}
