"""Discounted UCB: confidence bounds from outcomes that fade."""

from __future__ import annotations

from typing import final

from pydantic import Field

from freshband.schedulers._forgetting import Discounted
from freshband.schedulers.base import register
from freshband.schedulers.cucb import Ucb


@register("d-ucb")
@final
class DUcb(Discounted, Ucb):
    """UCB with discounted outcomes (D-UCB), for channels that change.

    Plays the M largest of `mean_k + sqrt(c ln n / D_k)`. An outcome that is s rounds old counts
    `γ^s` in the mean and in `D_k`, and `n` is the sum of `γ^s` over all rounds so far.

    Parameters
    ----------
    discount : float in (0, 1) or "auto", default 0.99
        The discount γ. ``auto`` is the authors' `1 - sqrt(n_breakpoints / T) / 4`, which needs the
        horizon T.
    n_breakpoints : int >= 1, default 5
        The number of changes assumed by ``auto``.
    index_c : float > 0, default 0.5
        The width `c` of the bonus.
    channel_key : as in `cucb`
        How the chosen channels are ranked.

    Notes
    -----
    Assumes that the means hold for about `1 / (1 - γ)` rounds. The state and the kernels are those
    of `cucb`, which has the discount as an option.

    **Deviations.** (1) M channels are played instead of one, those of the largest indices, and `n`
    counts rounds, not plays. (2) The authors' bonus is `2 sqrt(ξ ln n / D_k)` with ξ = 1/2, which
    is c = 2: with it the policy explores most of the time, so the default is the c of `sw-ucb`.

    Examples
    --------
    >>> import freshband
    >>> result = freshband.simulate(
    ...     "piecewise", ["cucb", "d-ucb"], clients=2, rounds=4000, runs=3, progress=False
    ... )
    >>> forgets_not, forgets = result.regret.mean("run").values
    >>> bool(forgets < forgets_not)
    True

    References
    ----------
    Kocsis and Szepesvári, "Discounted UCB", 2nd PASCAL Challenges Workshop 2006. Garivier and
    Moulines, "On upper-confidence bound policies for switching bandit problems", ALT 2011.
    """

    index_c: float = Field(default=0.5, gt=0)
