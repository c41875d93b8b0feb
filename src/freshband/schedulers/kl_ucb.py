"""kl-UCB: confidence bounds from the Bernoulli divergence."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from freshband._jit import kernel
from freshband.schedulers.base import register
from freshband.schedulers.counts import Counts, rounds_counted
from freshband.schedulers.index import IndexParameters, evaluate, plays_largest_index
from freshband.states import FIXED, declare


@plays_largest_index
class _KlUcbState(NamedTuple):
    """Counts and the last computed index."""

    counts: Counts
    values: NDArray[np.float64]  # (N,) the index
    key: NDArray[np.int64]  # (1,) see `freshband.schedulers.index._KEYS`


declare(_KlUcbState, key=FIXED)


@kernel
def _kl_upper_bound(p: float, budget: float) -> float:
    """Return the largest q in [p, 1] with kl(p, q) <= budget.

    Newton's method, started right of the root (at the smaller of Pinsker's bound and the one from
    `kl(p, q) >= (1-p) ln(1/(1-q)) - H(p)`), so that every step stays on that side.

    Examples
    --------
    >>> q = _kl_upper_bound(0.5, 0.1)
    >>> round(0.5 * math.log(0.5 / q) + 0.5 * math.log(0.5 / (1 - q)), 9)
    0.1
    >>> round(_kl_upper_bound(0.0, 1.0), 6) == round(1 - math.exp(-1.0), 6)
    True
    """
    if p >= 1.0:
        return 1.0
    if p <= 0.0:
        return 1.0 - math.exp(-budget)
    fixed = p * math.log(p) + (1.0 - p) * math.log(1.0 - p)
    q = 1.0 - math.exp((fixed - budget) / (1.0 - p))
    q = min(q, p + math.sqrt(0.5 * budget))
    for _ in range(20):
        if q >= 1.0 or q <= p:
            break
        excess = fixed - p * math.log(q) - (1.0 - p) * math.log(1.0 - q) - budget
        step = excess * q * (1.0 - q) / (q - p)
        if step < -1e-10:  # rounding errors over a difference as small as they are
            break
        q -= step
        if step < 1e-10:
            break
    return q


@evaluate.register(_KlUcbState)
def _evaluate(index: _KlUcbState, elapsed: int, rng: Any) -> None:
    counts = index.counts
    log_elapsed = math.log(rounds_counted(counts, elapsed))
    for channel in range(len(index.values)):
        pulls = counts.pulls[channel]
        if pulls > 0.0:
            index.values[channel] = _kl_upper_bound(counts.mean[channel], log_elapsed / pulls)
        else:
            index.values[channel] = math.inf


@register("kl-ucb")
@final
class KlUcb(IndexParameters):
    """Combinatorial kl-UCB for stationary channels.

    Plays the M largest of `max{q : D_k kl(mean_k, q) <= ln t}`, a tighter bound than that of `cucb`
    where means are near 0 or 1, and never above 1.

    Parameters
    ----------
    channel_key, mean_window, discount : as in `cucb`
        How channels are ranked, and how much of the past counts.

    Notes
    -----
    Assumes that nothing changes.

    **Deviations.** Not in the paper, which uses the index of `cucb`.

    Examples
    --------
    >>> from freshband import Coordinator
    >>> coordinator = Coordinator("kl-ucb", n_clients=1, n_channels=3, seed=0)
    >>> for t in range(30):
    ...     _ = coordinator.observe(coordinator.plan() == 2)  # only channel 2 delivers
    >>> coordinator.plan().tolist()
    [2]

    References
    ----------
    Garivier and Cappé, "The KL-UCB algorithm for bounded stochastic bandits and beyond", COLT 2011.
    """

    state_type: ClassVar[type] = _KlUcbState
