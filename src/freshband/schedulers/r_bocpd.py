"""R-BOCPD-UCB: UCB that restarts when a Bayesian detector believes in a change."""

from __future__ import annotations

from typing import Any, Literal, final

from pydantic import Field

from freshband.detectors.bocpd import RestartedBocpd
from freshband.schedulers.base import register
from freshband.schedulers.restarting import Restarting


@register("r-bocpd")
@final
class RBocpd(Restarting):
    """UCB with the restarted Bayesian online change-point detector (R-BOCPD).

    Plays the M largest of `mean_k + sqrt(c ln(t-τ) / D_k)`, sweeps through all channels every
    `⌊N/α⌋` rounds, and restarts when the outcomes of a channel are more likely with a change than
    without.

    Parameters
    ----------
    delta : float in (0, 1], default 0.01
        How much less likely a change is than none, before any outcome.
    forecasters : int >= 2, default 64
        The most beginnings of a segment that are considered per channel.
    alpha : float in [0, 1], default 0.02
        The share of forced exploration.
    restart : {"global", "local", "localised"}, default "global"
        What an alarm resets, as in `glr-cucb`.
    index_c : float > 0, default 0.5
        The width `c` of the UCB bonus; only with ``index="ucb"``.
    index, channel_key : as in `glr-cucb`
        The index played between changes, and how the chosen channels are ranked.

    Notes
    -----
    Assumes long segments; the detector needs no size of change.

    **Deviations.** (1) M channels are played instead of one: those of the largest indices. (2)
    Those of the detector, see `freshband.detectors.bocpd`. (3) The composition with UCB is ours: a
    sweep as in `m-ucb`, and a bonus with c = 1/2. The paper that combines the detector with bandits
    was not at hand, nor was a program of it, so neither its index nor its exploration is claimed
    to be this one.

    Examples
    --------
    >>> import freshband
    >>> result = freshband.simulate(
    ...     "piecewise", ["cucb", "r-bocpd"], clients=2, rounds=4000, runs=3, progress=False
    ... )
    >>> never, restarts = result.regret.mean("run").values
    >>> bool(restarts < never)
    True

    References
    ----------
    Alami, Maillard, Féraud, "Restarted Bayesian online change-point detector achieves optimal
    detection delay", ICML 2020 (the detector). Alami, "Bayesian change-point detection for bandit
    feedback in non-stationary environments", ACML 2022 (with bandits).
    """

    index_c: float = Field(default=0.5, gt=0)
    delta: float = Field(default=0.01, gt=0, le=1)
    forecasters: int = Field(default=64, ge=2)
    alpha: float = Field(default=0.02, ge=0, le=1)
    restart: Literal["global", "local", "localised"] = "global"

    def restarts(self, n_channels: int, horizon: int | None) -> dict[str, Any]:
        """Return the detector, and when and what restarts."""
        detector = RestartedBocpd(delta=self.delta, forecasters=self.forecasters)
        return {
            "detector": detector.start(n_channels),
            "alpha": self.alpha,
            "restart": self.restart,
        }
