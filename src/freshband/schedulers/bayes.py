"""`bayes`: a Bayes filter of switching channels, the default scheduler.

What it knows of shared links is in `_bayes_state`, what it does with it in `_bayes_channels`; both
are in `_bayes_links` for links that differ.
"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np
from pydantic import Field

from freshband.parameters import Parameters
from freshband.schedulers import (  # noqa: F401  # importing them registers their functions
    _bayes_before,
    _bayes_beliefs,
    _bayes_channels,
)
from freshband.schedulers._bayes_links import BayesLinksState, start_links
from freshband.schedulers._bayes_state import BayesState, start_channels
from freshband.schedulers.base import register


@register("bayes")
@final
class Bayes(Parameters):
    """Bayes filter of channels that switch, with or without a memory; the default.

    It learns how often channels switch, whether one by one or all at once, how their success rates
    are distributed, whether outcomes depend on those before, and whether they repeat after up to 16
    rounds; nothing has to be tuned to the channels, and no horizon is needed. It plays the M
    largest of posterior mean plus a bonus that grows with what is unknown about a channel and with
    the expected length of a segment.

    Parameters
    ----------
    optimism : float >= 0, default 1
        Scales the bonus. 0 explores only by chance, which is enough where most channels are in
        use.
    unrest : float in [0, 1], default 0.05
        By what share the bonus varies at random, so that nobody can know the choice in advance.
    alarm : float in (0, 1], default 0.9
        The probability above which a change of a channel is reported; 1 reports none.
    slots : int >= 2, default 32
        The number of beginnings kept per segment, K; a new one replaces the least likely.

    Notes
    -----
    Assumes segments of constant rates, outcomes that depend on those before, or outcomes that
    repeat, and learns which.
    Channels that are not used may switch more often than those that are (by `0.3/t` per round), so
    that they are tried again as time passes. Outcomes under way make the bonus of a channel
    smaller, by the share of late ones that ever arrive.

    **Deviations.** Not in the paper. Ranks by posterior mean where the paper ranks by (31).

    **Guarantee.** A client that was not heard for so long that the forecasts cannot be right makes
    the next 200 rounds uniformly random ones, and if it is not heard in them either, one in ten
    from then on. On air fixed in advance, whoever made it, the age in round t of each client whom
    random scheduling hears every 200 rounds or more often exceeds that under random scheduling by
    at most O(log(M t)): see the page on theory.

    A round costs `O(M H K + N (H + K + P))` for `H` = 8 hazards and `P` = 8 lengths of a period.

    **Links that differ.** Where links may differ per client, every link is scored. Six forecasters
    are weighted by how well they predict: links are shared; all differ; they scatter around the
    channel's rate, closely or widely; a quarter of them differ; or a client adds the same to the
    logit of every channel. All links change together. ``optimism`` scales an index that is close
    to Gittins', divided by the client's age, and half as many beginnings are kept. An alarm, which
    then concerns all links, names one of the channels just used. There is no unrest,
    and neither what came before an outcome nor a period is used.

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
    Brezzi, Lai, "Optimal learning and experimentation in bandit problems", Journal of Economic
    Dynamics and Control 2002 (the size of the bonus).
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
        slots = max(2, self.slots // 2)
        return start_links(n_clients, n_channels, slots, self.optimism, self.alarm)
