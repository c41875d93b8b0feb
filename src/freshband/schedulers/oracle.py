"""Oracles: policies that know the channels, against which regret is measured."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from freshband.parameters import Parameters
from freshband.schedulers._links import average_clients, offer_all
from freshband.schedulers.base import Presets, link_mean, means, register, reveal, score, select
from freshband.schedulers.index import plays_largest

_SELECTIONS = ("mean", "csi", "fixed")


@plays_largest
class _OracleState(NamedTuple):
    """The true means or states, and the values derived from them."""

    truth: NDArray[np.float64]  # (N,) true means of the round
    values: NDArray[np.float64]  # (N,) the key by which channels are chosen and ranked
    selection: NDArray[np.int64]  # (1,) position in _SELECTIONS


@reveal.register(_OracleState)
def _reveal(scheduler: _OracleState, true_means: Any, states: Any) -> None:
    selection = scheduler.selection[0]
    for channel in range(len(true_means)):
        mean = true_means[channel]
        scheduler.truth[channel] = mean
        if selection == 0:
            scheduler.values[channel] = mean
        elif selection == 1:  # Good channels first; means are NaN where a trace has none
            scheduler.values[channel] = states[channel]


@score.register(_OracleState)
def _score(scheduler: _OracleState, t: int, scores: Any) -> None:
    for channel in range(scores.shape[1]):
        scores[0, channel] = scheduler.values[channel]


@means.register(_OracleState)
def _means(scheduler: _OracleState, out: Any) -> None:
    for channel in range(len(out)):
        out[channel] = scheduler.truth[channel]


class _OracleLinksState(NamedTuple):
    """The same for M clients whose links differ."""

    truth: NDArray[np.float64]  # (M, N)
    values: NDArray[np.float64]  # (M, N)
    selection: NDArray[np.int64]  # (1,)


@reveal.register(_OracleLinksState)
def _reveal_links(scheduler: _OracleLinksState, true_means: Any, states: Any) -> None:
    selection = scheduler.selection[0]
    for client in range(len(scheduler.truth)):
        for channel in range(scheduler.truth.shape[1]):
            mean = true_means[client, channel]
            scheduler.truth[client, channel] = mean
            if selection == 0:
                scheduler.values[client, channel] = mean
            elif selection == 1:
                scheduler.values[client, channel] = states[client, channel]


@select.register(_OracleLinksState)
def _select_links(scheduler: _OracleLinksState, t: int, ages: Any, rng: Any, chosen: Any) -> None:
    offer_all(chosen)


@score.register(_OracleLinksState)
def _score_links(scheduler: _OracleLinksState, t: int, scores: Any) -> None:
    for client in range(scores.shape[0]):  # numba takes seconds for an assignment of matrices
        for channel in range(scores.shape[1]):
            scores[client, channel] = scheduler.values[client, channel]


@means.register(_OracleLinksState)
def _means_links(scheduler: _OracleLinksState, out: Any) -> None:
    average_clients(scheduler.truth, out)


@link_mean.register(_OracleLinksState)
def _link_mean(scheduler: _OracleLinksState, client: int, channel: int) -> float:
    return scheduler.truth[client, channel]  # type: ignore[no-any-return]  # a numpy number


@register("oracle")
@final
class Oracle(Parameters):
    """Clairvoyant choice of channels, in the three readings of equation (14) (erratum E5).

    * ``oracle:mean`` plays the M largest means of the current regime. With age matching it is the
      optimum for known means (`regret`), with rotation the paper's Lemma 3 (`regret_rotate`).
    * ``oracle:fixed`` plays the best set fixed in hindsight by realised Good rounds (Theorem 3);
      where links differ per client, it knows in how many rounds each link is Good.
    * ``oracle:csi`` sees which channels are Good in the current round (the text of section III).

    Parameters
    ----------
    selection : {"mean", "csi", "fixed"}, default "mean"
        What the oracle knows. The preset also sets it, as in ``oracle:csi``.

    Notes
    -----
    Assumes that it is shown the channels.

    **Deviations.** The paper names all three in different places, and against the instantaneous
    state every policy has linear regret; `mean` is the default. Oracles run in simulation only.

    Examples
    --------
    >>> import freshband
    >>> result = freshband.simulate(
    ...     "stationary", ["oracle", "oracle:csi"], clients=2, rounds=500, runs=2, progress=False
    ... )
    >>> gap = (
    ...     result.regret.sel(policy="oracle:csi").mean()
    ...     - result.regret.sel(policy="oracle").mean()
    ... )
    >>> bool(gap < 0)
    True
    """

    presets: ClassVar[Presets] = {
        "mean": {"selection": "mean"},
        "csi": {"selection": "csi"},
        "fixed": {"selection": "fixed"},
    }

    sees_channels: ClassVar[bool] = True
    selection: Literal["mean", "csi", "fixed"] = "mean"

    def start(
        self, n_clients: int, n_channels: int, rng: np.random.Generator, horizon: int | None
    ) -> _OracleState:
        """Allocate the state; ``values`` of a fixed oracle is filled in by the simulator."""
        return _OracleState(*self._arrays(n_channels))

    def start_links(
        self, n_clients: int, n_channels: int, rng: np.random.Generator, horizon: int | None
    ) -> _OracleLinksState:
        """Allocate the state; what is shown to the oracle has the shape (M, N)."""
        return _OracleLinksState(*self._arrays(n_clients, n_channels))

    def _arrays(
        self, *shape: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        selection = np.array([_SELECTIONS.index(self.selection)], np.int64)
        return np.zeros(shape), np.zeros(shape), selection
