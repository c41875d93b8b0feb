"""Thompson sampling: play the M channels whose posterior draws are largest."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from freshband.schedulers.base import register
from freshband.schedulers.counts import Counts
from freshband.schedulers.index import IndexParameters, evaluate, plays_largest_index
from freshband.states import FIXED, declare


@plays_largest_index
class _ThompsonState(NamedTuple):
    """Counts and the last posterior draws."""

    counts: Counts
    values: NDArray[np.float64]  # (N,) the draws
    key: NDArray[np.int64]  # (1,) see `freshband.schedulers.index._KEYS`


declare(_ThompsonState, key=FIXED)


@evaluate.register(_ThompsonState)
def _evaluate(index: _ThompsonState, elapsed: int, rng: Any) -> None:
    counts = index.counts
    for channel in range(len(index.values)):
        wins = counts.wins[channel]
        index.values[channel] = rng.beta(1.0 + wins, 1.0 + counts.pulls[channel] - wins)


@register("thompson")
@final
class Thompson(IndexParameters):
    """Combinatorial Thompson sampling with Beta(1, 1) priors for stationary channels.

    Draws `theta_k ~ Beta(1 + wins_k, 1 + losses_k)` and plays the M largest.

    Parameters
    ----------
    channel_key, mean_window, discount : as in `cucb`
        How channels are ranked, and how much of the past counts.

    Examples
    --------
    >>> from freshband import Coordinator
    >>> coordinator = Coordinator("thompson", n_clients=1, n_channels=3, seed=0)
    >>> for t in range(60):
    ...     _ = coordinator.observe(coordinator.plan() == 2)  # only channel 2 delivers
    >>> coordinator.plan().tolist()
    [2]

    Notes
    -----
    Assumes that nothing changes.

    **Deviations.** Not in the paper.

    References
    ----------
    Komiyama, Honda, Nakagawa, "Optimal regret analysis of Thompson sampling in stochastic
    multi-armed bandit problem with multiple plays", ICML 2015.
    """

    state_type: ClassVar[type] = _ThompsonState
