"""Thompson sampling that is told when a channel changes: how far learning alone can go."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from freshband.parameters import Parameters
from freshband.ranking import take_best
from freshband.schedulers.base import means, ranks_by_means, register, reveal, select, update


@ranks_by_means
class _ToldState(NamedTuple):
    """Outcomes of each channel since its last change."""

    truth: NDArray[np.float64]  # (N,) true means, used only to see that they change
    wins: NDArray[np.float64]  # (N,)
    losses: NDArray[np.float64]  # (N,)
    values: NDArray[np.float64]  # (N,) draws from the posterior


@reveal.register(_ToldState)
def _reveal(scheduler: _ToldState, true_means: Any, states: Any) -> None:
    for channel in range(len(true_means)):
        if true_means[channel] != scheduler.truth[channel]:
            scheduler.truth[channel] = true_means[channel]
            scheduler.wins[channel] = 0.0
            scheduler.losses[channel] = 0.0


@select.register(_ToldState)
def _select(scheduler: _ToldState, t: int, ages: Any, rng: Any, chosen: Any) -> None:
    for channel in range(len(scheduler.values)):
        wins, losses = scheduler.wins[channel], scheduler.losses[channel]
        scheduler.values[channel] = rng.beta(1.0 + wins, 1.0 + losses)
    take_best(scheduler.values, t, chosen)


@means.register(_ToldState)
def _means(scheduler: _ToldState, out: Any) -> None:
    for channel in range(len(out)):
        wins = scheduler.wins[channel]
        out[channel] = (1.0 + wins) / (2.0 + wins + scheduler.losses[channel])


@update.register(_ToldState)
def _update(scheduler: _ToldState, t: int, assignment: Any, outcome: Any, overridden: Any) -> int:
    for j in range(len(assignment)):
        if assignment[j] >= 0 and outcome[j] == 1:
            scheduler.wins[assignment[j]] += 1.0
        elif assignment[j] >= 0 and outcome[j] == 0:
            scheduler.losses[assignment[j]] += 1.0
    return -1


@register("told")
@final
class Told(Parameters):
    """Thompson sampling that is told at once which channels changed, and starts anew with them.

    A yardstick: it still has to learn the new success rates, but never has to notice a change. It
    runs in simulation only.

    Notes
    -----
    Assumes that it is shown every change.

    **Deviations.** Not in the paper.

    Examples
    --------
    >>> import freshband
    >>> result = freshband.simulate(
    ...     "fig2", ["told", "thompson"], clients=2, rounds=3000, runs=2, progress=False
    ... )
    >>> told, untold = result.regret.mean("run").values
    >>> bool(told < untold)
    True
    """

    sees_channels: ClassVar[bool] = True

    def start(
        self, n_clients: int, n_channels: int, rng: np.random.Generator, horizon: int | None
    ) -> _ToldState:
        """Allocate the state."""
        return _ToldState(
            truth=np.full(n_channels, -1.0),
            wins=np.zeros(n_channels),
            losses=np.zeros(n_channels),
            values=np.zeros(n_channels),
        )
