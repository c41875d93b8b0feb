"""Q-UCB: UCB with random exploration that fades, from queues to ages."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from freshband.schedulers.base import register
from freshband.schedulers.counts import Counts
from freshband.schedulers.index import Index, evaluate, plays_largest_index
from freshband.states import FIXED, declare


@plays_largest_index
class _QUcbState(NamedTuple):
    """Counts and the last computed index."""

    counts: Counts
    values: NDArray[np.float64]  # (N,) the index, or random numbers
    key: NDArray[np.int64]  # (1,) see `freshband.schedulers.index._KEYS`
    exploration: NDArray[np.float64]  # (1,)


declare(_QUcbState, key=FIXED, exploration=FIXED)


@evaluate.register(_QUcbState)
def _evaluate(index: _QUcbState, elapsed: int, rng: Any) -> None:
    counts, values = index.counts, index.values
    width = math.log(elapsed)
    explores = rng.random() * elapsed < index.exploration[0] * len(values) * width * width
    for channel in range(len(values)):
        if explores:
            values[channel] = rng.random()
        elif counts.pulls[channel] > 0.0:
            bonus = width * counts.width[channel] * math.sqrt(0.5)
            values[channel] = counts.mean[channel] + bonus
        else:
            values[channel] = math.inf


@register("q-ucb")
@final
class QUcb(Index):
    """UCB that explores at random with a probability that fades (Q-UCB), for stationary channels.

    With probability `min(1, 3 N ln² t / t)` the M channels of a round are random, otherwise they
    are those of the largest `mean_k + sqrt(ln² t / (2 D_k))`.

    Parameters
    ----------
    exploration : float in [0, 100], default 3.0
        The factor 3 of the probability.
    channel_key : as in `cucb`
        How the chosen channels are ranked; in a random round ``index`` ranks at random.

    Notes
    -----
    Assumes that nothing changes. It comes from queues, whose length also depends on runs of
    failures, as ages do. It explores for long: with N = 5 all of the first 600 rounds are random.

    **Deviations.** (1) M channels are played instead of one.

    Examples
    --------
    >>> import freshband
    >>> result = freshband.simulate(
    ...     "stationary", ["random", "q-ucb"], clients=2, rounds=10_000, runs=3, progress=False
    ... )
    >>> chance, learns = result.regret.mean("run").values
    >>> bool(learns < chance)
    True

    References
    ----------
    Krishnasamy, Sen, Johari, Shakkottai, "Learning unknown service rates in queues: a multiarmed
    bandit approach", Operations Research 2021. Fatale, Bhandari, Narula, Moharir, Hanawal, "Regret
    of age-of-information bandits", IEEE Trans. Commun. 2022.
    """

    state_type: ClassVar[type] = _QUcbState

    exploration: float = Field(default=3.0, ge=0, le=100)

    def own_arrays(self) -> dict[str, Any]:
        """Return the factor of the exploration."""
        return {"exploration": np.array([self.exploration])}
