"""Thompson sampling: play the M channels whose posterior draws are largest."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from freshband.parameters import Parameters
from freshband.schedulers.base import register
from freshband.schedulers.counts import Counts, start_counts
from freshband.schedulers.index import evaluate, key_code, plays_largest_index

__all__ = ["Thompson", "ThompsonState"]


@plays_largest_index
class ThompsonState(NamedTuple):
    """Counts and the last posterior draws."""

    counts: Counts
    values: NDArray[np.float64]  # (N,) the draws
    key: NDArray[np.int64]  # (1,) see `freshband.schedulers.index.KEYS`


@evaluate.register(ThompsonState)
def _evaluate(index: ThompsonState, elapsed: int, rng: Any) -> None:
    counts = index.counts
    for channel in range(len(index.values)):
        wins = counts.wins[channel]
        index.values[channel] = rng.beta(1.0 + wins, 1.0 + counts.pulls[channel] - wins)


@register("thompson")
@final
class Thompson(Parameters):
    """Combinatorial Thompson sampling with Beta(1, 1) priors for stationary channels.

    Draws `theta_k ~ Beta(1 + wins_k, 1 + losses_k)` and plays the M largest.

    Parameters
    ----------
    channel_key : {"mean", "index"}, default "mean"
        How the chosen channels are ranked for matching: historical mean (31) or the draw.
    mean_window : int >= 1, optional
        Use only the last so many rounds.
    discount : float in (0, 1), optional
        Fade counts by this factor each round.

    Notes
    -----
    **Deviations.** Not in the paper, whose index is `cucb`'s.

    Examples
    --------
    >>> from freshband import Coordinator
    >>> coordinator = Coordinator("thompson", n_clients=1, n_channels=3, seed=0)
    >>> for t in range(60):
    ...     _ = coordinator.observe(coordinator.plan() == 2)  # only channel 2 delivers
    >>> coordinator.plan().tolist()
    [2]

    References
    ----------
    Komiyama, Honda, Nakagawa, "Optimal regret analysis of Thompson sampling in stochastic
    multi-armed bandit problem with multiple plays", ICML 2015.
    """

    channel_key: Literal["mean", "index"] = "mean"
    mean_window: int | None = Field(default=None, ge=1)
    discount: float | None = Field(default=None, gt=0, lt=1)

    def start(
        self, n_clients: int, n_channels: int, rng: np.random.Generator, horizon: int | None
    ) -> ThompsonState:
        """Allocate the state."""
        return ThompsonState(
            counts=start_counts(n_clients, n_channels, self.mean_window, self.discount),
            values=np.zeros(n_channels),
            key=key_code(self.channel_key),
        )
