"""`bayes`: a Bayes filter of switching channels, the default scheduler.

What it knows of shared links is in `_bayes_channels`, of links that differ in `_bayes_links`.
"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np
from pydantic import Field

from freshband.parameters import Parameters
from freshband.schedulers import _bayes_before  # noqa: F401  # registers an upgrade
from freshband.schedulers._bayes_channels import BayesState, start_channels
from freshband.schedulers._bayes_links import BayesLinksState, start_links
from freshband.schedulers.base import register

__all__ = ["Bayes"]


@register("bayes")
@final
class Bayes(Parameters):
    """Bayes filter of switching channels: the M largest of posterior mean + c standard deviations.

    It learns how often channels switch, from every five rounds to never, and whether one by one or
    all at once; nothing has to be tuned to the channels, and no horizon is needed.

    Parameters
    ----------
    optimism : float >= 0, default 1.5
        The `c` of the index. 0 explores only by chance, which is enough where most channels are in
        use; larger values pay off over many rounds.
    slots : int >= 2, default 32
        The number of beginnings kept per segment, K; a new one replaces the least likely.

    Notes
    -----
    **Deviations.** Not in the paper. Ranks by posterior mean where the paper ranks by (31).

    A round costs `O(N H K)` for `H` = 5 hazards, twenty times as much as `glr-cucb`.

    **Links that differ.** Where links may differ per client, every link is scored. Six forecasters
    are weighted by how well they predict: links are shared; all differ; they scatter around the
    channel's rate, closely or widely; a quarter of them differ; or a client adds the same to the
    logit of every channel. All links change together. ``optimism`` scales an index that is close
    to Gittins', divided by the client's age, and half as many beginnings are kept.

    Examples
    --------
    >>> from freshband import Coordinator
    >>> coordinator = Coordinator("bayes", n_clients=1, n_channels=3, seed=0)
    >>> for t in range(200):
    ...     works = 2 if t < 180 else 0  # the one channel that delivers
    ...     _ = coordinator.observe(coordinator.plan() == works)
    >>> coordinator.plan().tolist()
    [0]

    References
    ----------
    Adams, MacKay, "Bayesian online changepoint detection", 2007.
    Mellor, Shapiro, "Thompson sampling in switching environments with Bayesian online change
    detection", AISTATS 2013.
    Herbster, Warmuth, "Tracking the best expert", Machine Learning 1998 (forgetting the trust).
    """

    detects: ClassVar[bool] = True
    optimism: float = Field(default=1.0, ge=0)
    unrest: float = Field(default=0.05, ge=0, le=1)
    alarm: float = Field(default=0.9, gt=0, le=1)
    slots: int = Field(default=32, ge=2)

    def start(
        self, n_clients: int, n_channels: int, rng: np.random.Generator, horizon: int | None
    ) -> BayesState:
        """Allocate the state."""
        options = {"optimism": self.optimism, "unrest": self.unrest, "alarm": self.alarm}
        return start_channels(n_clients, n_channels, self.slots, **options)

    def start_links(
        self, n_clients: int, n_channels: int, rng: np.random.Generator, horizon: int | None
    ) -> BayesLinksState:
        """Allocate the state of links that may differ per client."""
        return start_links(n_clients, n_channels, max(2, self.slots // 2), self.optimism)
