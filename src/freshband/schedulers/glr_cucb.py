"""GLR-CUCB (Algorithm 2): an index policy that restarts when a channel changes."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal, final

from pydantic import Field

from freshband.detectors.glr import Glr
from freshband.schedulers.base import Matchings, Presets, _needed_horizon, register
from freshband.schedulers.restarting import Restarting


@register("glr-cucb")
@final
class GlrCucb(Restarting):
    """UCB with an exact change detector and restarts, Algorithm 2 (GLR-CUCB).

    Plays the M largest of `mean_k + sqrt(c ln(t-τ) / D_k)` (equation (30)), sweeps through all
    channels every `⌊N/α⌋` rounds, runs the Bernoulli GLR test on every acknowledgement and restarts
    (`τ <- t`) when it fires.

    Parameters
    ----------
    index : str, default "ucb"
        The index played between changes: ``ucb``, ``kl-ucb``, ``thompson``, or the name of any
        other scheduler that plays the largest index, such as your own.
    index_c : float > 0, default 1.5
        The width `c` of the UCB bonus; only with ``index="ucb"``.
    channel_key : {"mean", "index"}, default "mean"
        How the chosen channels are ranked for matching: historical mean (31) or UCB (30).
    delta : float in (0, 1), default 0.001
        The false-alarm level δ of the detector.
    threshold : {"paper", "besson", "kaufmann", "lai"}, default "paper"
        The detector's threshold, see `freshband.detectors.glr.threshold`.
    alpha : float in [0, 1], "paper", "besson" or "anytime", default "anytime"
        The share α of forced exploration. ``paper`` is `0.05 sqrt(ln T / T)`, ``besson`` is
        `0.05 sqrt(N n_segments ln T / T)`; both need the horizon. ``anytime`` uses the time since
        the last restart in place of T. With 0 only the sweep after each restart is forced.
    alpha_schedule : {"constant", "sqrt_episode"}, default "constant"
        Whether α grows with the root of the number of restarts.
    n_segments : int >= 1, default 6
        The number of stationary segments assumed by ``alpha="besson"``.
    explore_fill : {"index", "random"}, default "index"
        How the other M-1 channels of a forced round are chosen: by index, or at random.
    restart : {"global", "local", "localised"}, default "global"
        What an alarm resets: all channels, only the one that changed, or all, where the changed one
        keeps its outcomes since the change.

    Notes
    -----
    Assumes long segments, at the ends of which all channels may change.

    The preset ``paper`` is the printed algorithm. The preset ``fresh`` is the strongest known: a
    narrower bonus, a detector that accepts more false alarms to raise true ones earlier, and a
    changed channel that keeps its outcomes since the change.

    **Deviations** (erratum E15). (1) `α >= 0` is read as α > 0; 0 switches forced exploration off.
    (2) `(t-τ) mod ⌊N/α⌋ in [N]` is read 1-based, so the last channel is reached too, also when
    `⌊N/α⌋ <= N`. (3) The mean divides by the new count. (4) A restart forgets means and histories,
    not only counts, and ends the round's tests: after it the printed loop would take the logarithm
    of zero. (5) A channel without outcomes has index +∞.

    Examples
    --------
    >>> import freshband
    >>> result = freshband.simulate(
    ...     "piecewise", ["random", "glr-cucb"], clients=2, rounds=4000, runs=3, progress=False
    ... )
    >>> mean = result.regret.mean("run")
    >>> bool(mean.sel(policy="glr-cucb") < 0.2 * mean.sel(policy="random"))
    True

    References
    ----------
    Zhou, Wang, Varshney, Lim, "A near-optimal change-detection based algorithm for
    piecewise-stationary combinatorial semi-bandits", AAAI 2020.
    """

    presets: ClassVar[Presets] = {
        "paper": {"alpha": "paper", "explore_fill": "random", "channel_key": "index"},
        "fresh": {"index_c": 0.25, "restart": "localised", "delta": 0.05, "threshold": "lai"},
    }
    matchings: ClassVar[Matchings] = {"paper": "rotate"}

    delta: float = Field(default=0.001, gt=0, lt=1)
    threshold: Literal["paper", "besson", "kaufmann", "lai"] = "paper"
    alpha: Annotated[float, Field(ge=0, le=1)] | Literal["paper", "besson", "anytime"] = "anytime"
    alpha_schedule: Literal["constant", "sqrt_episode"] = "constant"
    n_segments: int = Field(default=6, ge=1)
    explore_fill: Literal["index", "random"] = "index"
    restart: Literal["global", "local", "localised"] = "global"

    def restarts(self, n_channels: int, horizon: int | None) -> dict[str, Any]:
        """Return the detector, and when and what restarts."""
        return {
            "detector": Glr(delta=self.delta, threshold=self.threshold).start(n_channels),
            "alpha": self._rate(n_channels, horizon),
            "grows": self.alpha_schedule == "sqrt_episode",
            "falls": self.alpha == "anytime",
            "restart": self.restart,
            "random_fill": self.explore_fill == "random",
        }

    def _rate(self, n_channels: int, horizon: int | None) -> float:
        if not isinstance(self.alpha, str):
            return self.alpha
        if self.alpha == "anytime":
            return 0.05
        rounds = _needed_horizon(horizon, f"glr-cucb with alpha={self.alpha!r}")
        scale = 1 if self.alpha == "paper" else n_channels * self.n_segments
        return 0.05 * math.sqrt(scale * math.log(rounds) / rounds)
