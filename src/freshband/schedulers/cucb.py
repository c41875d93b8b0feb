"""CUCB: play the M channels with the largest upper confidence bounds."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from freshband.schedulers.base import register
from freshband.schedulers.counts import Counts, rounds_counted
from freshband.schedulers.index import Index, IndexParameters, evaluate, plays_largest_index
from freshband.states import FIXED, declare


@plays_largest_index
class _CucbState(NamedTuple):
    """Counts and the last computed index."""

    counts: Counts
    values: NDArray[np.float64]  # (N,) the index
    key: NDArray[np.int64]  # (1,) see `freshband.schedulers.index._KEYS`
    bonus: NDArray[np.float64]  # (1,) c


declare(_CucbState, key=FIXED, bonus=FIXED)


@evaluate.register(_CucbState)
def _evaluate(index: _CucbState, elapsed: int, rng: Any) -> None:
    # never 0, so that a channel without outcomes, whose width is infinite, has an infinite index
    rounds = rounds_counted(index.counts, elapsed)
    root = max(math.sqrt(index.bonus[0] * math.log(rounds)), 1e-300)
    mean = index.counts.mean
    width = index.counts.width
    for channel in range(len(index.values)):
        index.values[channel] = mean[channel] + root * width[channel]


class Ucb(Index):
    """Hyper-parameters of every policy that plays the largest upper confidence bounds."""

    state_type: ClassVar[type] = _CucbState

    index_c: float = Field(default=1.5, gt=0)

    def own_arrays(self) -> dict[str, Any]:
        """Return the width of the bonus."""
        return {"bonus": np.array([self.index_c])}


@register("cucb")
@final
class Cucb(Ucb, IndexParameters):
    """Combinatorial UCB for stationary channels.

    Plays the M largest of `mean_k + sqrt(c ln t / D_k)` (equation (30) with τ = 0), where `D_k`
    counts the acknowledgements of channel k. A channel without any comes first.

    Parameters
    ----------
    index_c : float > 0, default 1.5
        The width `c` of the confidence bonus; the paper's `3/2`.
    channel_key : {"mean", "index"}, default "mean"
        How the chosen channels are ranked for matching: historical mean (31) or UCB (30).
    mean_window : int >= 1, optional
        The number of most recent rounds that count, also in `ln t`, as in `sw-ucb`.
    discount : float in (0, 1), optional
        The factor per round by which counts fade, also the `t` of `ln t`, as in `d-ucb`.

    Notes
    -----
    Assumes that nothing changes.

    **Deviations.** None from (30). The paper ranks by UCB, which puts the least known channel
    first; the mean is better for age matching, so it is the default.

    Examples
    --------
    >>> from freshband import Coordinator
    >>> coordinator = Coordinator("cucb", n_clients=2, n_channels=3, seed=0)
    >>> tries = 0
    >>> for t in range(500):
    ...     plan = coordinator.plan()
    ...     tries += 1 in plan
    ...     _ = coordinator.observe(plan != 1)  # channel 1 never delivers
    >>> tries < 50
    True

    References
    ----------
    Chen, Wang, Yuan, "Combinatorial multi-armed bandit", ICML 2013.
    """
