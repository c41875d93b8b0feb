"""Sliding-window Thompson sampling: posterior draws from the most recent rounds."""

from __future__ import annotations

from typing import ClassVar, final

from freshband.schedulers._forgetting import Windowed
from freshband.schedulers.base import register
from freshband.schedulers.thompson import _ThompsonState


@register("sw-thompson")
@final
class SwThompson(Windowed):
    """Thompson sampling over a sliding window (SW-TS), for channels that change abruptly.

    Draws `theta_k ~ Beta(1 + wins_k, 1 + losses_k)` from the outcomes of the last τ rounds and
    plays the M largest.

    Parameters
    ----------
    window, n_breakpoints, channel_key : as in `sw-ucb`
        The window τ, its tuning, and how the chosen channels are ranked.

    Notes
    -----
    Assumes that changes are rare compared with the window. The state and the kernels are those of
    `thompson`, which has the window as an option.

    **Deviations.** (1) M channels are played instead of one, those of the largest draws. (2)
    ``window="auto"`` is the tuning of `sw-ucb`; the authors' analysis has `sqrt(T)`, without a
    number of changes.

    Examples
    --------
    >>> import freshband
    >>> result = freshband.simulate(
    ...     "piecewise", ["thompson", "sw-thompson"], clients=2, rounds=4000, runs=3, progress=False
    ... )
    >>> forgets_not, forgets = result.regret.mean("run").values
    >>> bool(forgets < forgets_not)
    True

    References
    ----------
    Trovò, Paladino, Restelli, Gatti, "Sliding-window Thompson sampling for non-stationary
    settings", JAIR 2020.
    """

    state_type: ClassVar[type] = _ThompsonState
