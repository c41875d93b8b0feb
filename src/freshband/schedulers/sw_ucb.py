"""Sliding-window UCB: confidence bounds from the most recent rounds."""

from __future__ import annotations

from typing import final

from pydantic import Field

from freshband.schedulers._forgetting import Windowed
from freshband.schedulers.base import register
from freshband.schedulers.cucb import Ucb


@register("sw-ucb")
@final
class SwUcb(Windowed, Ucb):
    """UCB over a sliding window (SW-UCB), for channels that change abruptly.

    Plays the M largest of `mean_k + sqrt(c ln(min(t, τ)) / D_k)`, where mean and count `D_k` are
    those of the last τ rounds.

    Parameters
    ----------
    window : int >= 1 or "auto", default 200
        The window τ. ``auto`` is the authors' `2 sqrt(T ln T / n_breakpoints)`, which needs the
        horizon T.
    n_breakpoints : int >= 1, default 5
        The number of changes assumed by ``auto``.
    index_c : float > 0, default 0.5
        The width `c` of the bonus; the authors' ξ.
    channel_key : as in `cucb`
        How the chosen channels are ranked.

    Notes
    -----
    Assumes that changes are rare compared with the window. The state and the kernels are those of
    `cucb`, which has the window as an option.

    **Deviations.** (1) M channels are played instead of one, those of the largest indices; the
    window counts rounds, so that it holds up to M τ outcomes.

    Examples
    --------
    >>> import freshband
    >>> result = freshband.simulate(
    ...     "piecewise", ["cucb", "sw-ucb"], clients=2, rounds=4000, runs=3, progress=False
    ... )
    >>> forgets_not, forgets = result.regret.mean("run").values
    >>> bool(forgets < forgets_not)
    True

    References
    ----------
    Garivier and Moulines, "On upper-confidence bound policies for switching bandit problems", ALT
    2011.
    """

    index_c: float = Field(default=0.5, gt=0)
