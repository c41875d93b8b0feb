"""Discounted Thompson sampling: posterior draws from outcomes that fade."""

from __future__ import annotations

from typing import ClassVar, final

from freshband.schedulers._forgetting import Discounted
from freshband.schedulers.base import register
from freshband.schedulers.thompson import _ThompsonState


@register("d-thompson")
@final
class DThompson(Discounted):
    """Thompson sampling with discounted outcomes (dTS), for channels that change.

    Draws `theta_k ~ Beta(1 + wins_k, 1 + losses_k)`, where every round multiplies wins and losses
    by γ, and plays the M largest.

    Parameters
    ----------
    discount, n_breakpoints, channel_key : as in `d-ucb`
        The discount γ, its tuning, and how the chosen channels are ranked.

    Notes
    -----
    Assumes that the means hold for about `1 / (1 - γ)` rounds. The state and the kernels are those
    of `thompson`, which has the discount as an option.

    **Deviations.** (1) M channels are played instead of one, those of the largest draws. (2) The
    authors suggest γ = 0.75, which forgets within four rounds; the default is 0.99. (3)
    ``discount="auto"`` is the tuning of `d-ucb`.

    **Published numbers.** Besson's thesis has regrets of 209 and 249 for DTS with γ = 0.95 on
    `besson-1` and `besson-2` (T = 5000). Here it has 422 and 437. The program behind the table,
    SMPyBandits, multiplies the counts of the channel just played by γ once for each channel, and
    those of the others never; written so, it has 208 and 251 (``tests/science/test_besson.py``).

    Examples
    --------
    >>> import freshband
    >>> result = freshband.simulate(
    ...     "piecewise", ["thompson", "d-thompson"], clients=2, rounds=4000, runs=3, progress=False
    ... )
    >>> forgets_not, forgets = result.regret.mean("run").values
    >>> bool(forgets < forgets_not)
    True

    References
    ----------
    Raj and Kalyani, "Taming non-stationary bandits: a Bayesian approach", arXiv:1707.09727, 2017.
    Besson, "Multi-players bandit algorithms for Internet of Things networks", PhD thesis,
    CentraleSupélec, 2019 (chapter 6).
    """

    state_type: ClassVar[type] = _ThompsonState
