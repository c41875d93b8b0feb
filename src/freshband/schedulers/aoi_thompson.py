"""AoI-Thompson: Thompson sampling that exploits while ages are high."""

from __future__ import annotations

from typing import Literal, final

import numpy as np

from freshband.parameters import Parameters
from freshband.schedulers._aoi_aware import AoIAwareState, wrap
from freshband.schedulers.base import register
from freshband.schedulers.thompson import Thompson


@register("aoi-thompson")
@final
class AoiThompson(Parameters):
    """Thompson sampling that is greedy while ages are high (AA-TS), for stationary channels.

    A client older than `1 / max mean_k` takes the free channel with the best historical mean;
    all others get the channels of the largest posterior draws. It is `thompson+aa` under its own
    name.

    Parameters
    ----------
    rule : {"per_client", "sum"}, default "per_client"
        Whether each client is looked at, or the sum of all ages, as with ``+aa-sum``.

    Notes
    -----
    Assumes that nothing changes: old means are what it exploits.

    **Deviations.** (1) The authors have one client. With more, the oldest chooses first, and who
    loses its channel gets the next best (erratum E16).

    Examples
    --------
    >>> import freshband
    >>> result = freshband.simulate(
    ...     "stationary", ["thompson+aa", "aoi-thompson"], clients=2, rounds=500, runs=2
    ... )
    >>> composed, named = result.regret.mean("run").values
    >>> bool(composed == named)
    True

    References
    ----------
    Fatale, Bhandari, Narula, Moharir, Hanawal, "Regret of age-of-information bandits", IEEE Trans.
    Commun. 2022.
    """

    rule: Literal["per_client", "sum"] = "per_client"

    def start(
        self, n_clients: int, n_channels: int, rng: np.random.Generator, horizon: int | None
    ) -> AoIAwareState:
        """Allocate the state."""
        inner = Thompson().start(n_clients, n_channels, rng, horizon)
        return wrap(inner, self.rule, n_clients, n_channels)

    def refuses(self, aware: str) -> str | None:
        """Refuse a second rule of the same kind."""
        return "aoi-thompson is AoI-aware by itself: leave out +aa"
