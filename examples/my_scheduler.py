"""Your own scheduler in one file: epsilon-greedy.

freshband --import examples/my_scheduler.py simulate --policies random,epsilon-greedy,glr-cucb
"""

from typing import Any, ClassVar, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from freshband.parameters import Parameters
from freshband.ranking import take_best
from freshband.schedulers.base import Presets, means, register, score, select, update
from freshband.schedulers.counts import Counts, absorb, start_counts
from freshband.schedulers.random import draw_subset

__all__ = ["EpsilonGreedy", "EpsilonGreedyState"]


class EpsilonGreedyState(NamedTuple):
    """Everything that changes; the name of the class must be unique."""

    counts: Counts  # successes and trials of each channel
    deck: NDArray[np.int64]  # (N,) to draw random channels from
    epsilon: NDArray[np.float64]  # (1,)


@select.register(EpsilonGreedyState)
def _select(scheduler: EpsilonGreedyState, t: int, ages: Any, rng: Any, chosen: Any) -> None:
    if rng.random() < scheduler.epsilon[0]:
        draw_subset(scheduler.deck, rng, chosen)
    else:
        take_best(scheduler.counts.mean, t, chosen)


@score.register(EpsilonGreedyState)
def _score(scheduler: EpsilonGreedyState, t: int, scores: Any) -> None:
    for channel in range(scores.shape[1]):
        scores[0, channel] = scheduler.counts.mean[channel]


@means.register(EpsilonGreedyState)
def _means(scheduler: EpsilonGreedyState, out: Any) -> None:
    for channel in range(len(out)):
        out[channel] = scheduler.counts.mean[channel]


@update.register(EpsilonGreedyState)
def _update(
    scheduler: EpsilonGreedyState, t: int, assignment: Any, outcome: Any, overridden: Any
) -> int:
    absorb(scheduler.counts, t, assignment, outcome)
    return -1  # no change detected: this policy does not look for changes


@register("epsilon-greedy")
@final
class EpsilonGreedy(Parameters):
    """Random channels with probability epsilon, otherwise those with the best means so far.

    Parameters
    ----------
    epsilon : float in [0, 1], default 0.1
        Probability of a round with random channels.
    discount : float in (0, 1), optional
        Factor by which the weight of past observations falls per round.

    Notes
    -----
    **Deviations.** Not in the paper.

    Examples
    --------
    >>> import freshband
    >>> result = freshband.simulate(
    ...     "piecewise",
    ...     ["random", "epsilon-greedy"],
    ...     policy_options={"epsilon-greedy": {"epsilon": 0.05, "discount": 0.99}},
    ...     rounds=2000,
    ...     runs=3,
    ... )
    >>> mean = result.regret.mean("run")
    >>> bool(mean.sel(policy="epsilon-greedy") < mean.sel(policy="random"))
    True
    """

    presets: ClassVar[Presets] = {"bold": {"epsilon": 0.3}}

    epsilon: float = Field(default=0.1, ge=0, le=1)
    discount: float | None = Field(default=None, gt=0, lt=1)

    def start(
        self, n_clients: int, n_channels: int, rng: np.random.Generator, horizon: int | None
    ) -> EpsilonGreedyState:
        """Allocate the state."""
        return EpsilonGreedyState(
            counts=start_counts(n_clients, n_channels, discount=self.discount),
            deck=np.arange(n_channels),
            epsilon=np.array([self.epsilon]),
        )
