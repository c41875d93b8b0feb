"""Theorem 3: the AoI regret of M-Exp3, which treats every set of M channels as one arm."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from freshband.errors import ParameterError
from freshband.theory.bound import Bound
from freshband.theory.cost import age_cutoff
from freshband.theory.inputs import Variant, at_most, is_literal, probabilities, whole_numbers

__all__ = ["m_exp3_bound", "missed_needle_regret", "n_super_arms"]

_E1 = math.e - 1.0


def n_super_arms(n_clients: ArrayLike, n_channels: ArrayLike) -> NDArray[np.float64]:
    """Return `|C(N,M)|`, the number of ways to choose M of N channels.

    Examples
    --------
    >>> n_super_arms([2, 4, 20], [5, 6, 30]).tolist()
    [10.0, 15.0, 30045015.0]
    """
    clients = whole_numbers("n_clients", n_clients, at_least=1)
    channels = whole_numbers("n_channels", n_channels, at_least=1)
    at_most("n_clients", clients, "n_channels", channels)
    log = gammaln(channels + 1.0) - gammaln(clients + 1.0) - gammaln(channels - clients + 1.0)
    with np.errstate(over="ignore"):
        return np.asarray(np.round(np.exp(log)))


def m_exp3_bound(
    n_clients: ArrayLike,
    n_channels: ArrayLike,
    rounds: ArrayLike,
    variant: Variant = "corrected",
    *,
    worst: ArrayLike | None = None,
    best: ArrayLike | None = None,
) -> Bound:
    """Return the upper bound on the AoI regret of M-Exp3 (Theorem 3).

    As printed, `4M√(e-1) C² √(TC ln C)` with `C = |C(N,M)|`, in *any* air. That is false, see
    `missed_needle_regret`. Corrected, for stationary air and random matching,

        R <= (n ρ + M/μ_min) / ν*,    ρ = 2M√(e-1) √(TC ln C),

    where ρ bounds the successes lost and n, the `age_cutoff`, what a lost success can cost.

    Parameters
    ----------
    n_clients : array of int >= 1
        M.
    n_channels : array of int >= n_clients
        N.
    rounds : array of int >= 1
        T.
    variant : {"corrected", "literal"}, default "corrected"
        What is proved, or (21) as printed.
    worst : array of float in (0, 1]
        `μ_min`, the least mean; corrected variant only.
    best : array of float in (0, 1], optional
        `ν*`, the mean over the M best channels; needed by the corrected variant.

    Returns
    -------
    Bound
        Upper. Conditions as printed: `T > 16(e-1) C³ ln C`, which is false in the paper's own
        setting, and, if ``best`` is known, `G_max >= T/C`.

    Notes
    -----
    **Deviations** (erratum E12). (1) (20) replaces the mean age by `T/G`, rounds over successes;
    ages depend on when the successes come. (2) The bound (19) on lost successes needs the
    exploration rate `γ = √(C ln C / ((e-1)T))` and rewards in [0, 1]; with the paper's `γ = 0.5`
    regret is linear. (3) The denominator of (20) takes for a client's loss what bounds the loss
    of all together. (4) The corrected bound compares with the best set under random
    matching, and the policy must match at random too.

    Examples
    --------
    >>> bound = m_exp3_bound(2, 5, [20_000, 100_000], "literal")
    >>> bound.value.round(-4).tolist(), bound.holds.tolist()
    ([710000.0, 1590000.0], [False, True])
    >>> float(m_exp3_bound(2, 5, 20_000, worst=0.4, best=0.8).value.round(-2))
    89000.0
    """
    literal = is_literal(variant)
    clients = whole_numbers("n_clients", n_clients, at_least=1)
    horizon = whole_numbers("rounds", rounds, at_least=1)
    arms = n_super_arms(n_clients, n_channels)
    spread = np.sqrt(_E1 * horizon * arms * np.log(arms))  # √(e-1) √(TC ln C)
    if literal:
        conditions = {
            "rounds > 16 (e-1) C^3 ln C": np.asarray(horizon > 16 * _E1 * arms**3 * np.log(arms))
        }
        if best is not None:
            mean = probabilities("best", best, above_zero=True)
            conditions["successes of the best >= rounds / C"] = np.asarray(mean >= 1.0 / arms)
        return Bound(np.asarray(4.0 * clients * arms**2 * spread), "upper", conditions)
    if worst is None or best is None:
        raise ParameterError("worst and best must be given with variant='corrected'")
    low = probabilities("worst", worst, above_zero=True)
    high = probabilities("best", best, above_zero=True)
    at_most("worst", low, "best", high)
    value = (age_cutoff(rounds, low) * 2.0 * clients * spread + clients / low) / high
    return Bound(np.asarray(value), "upper", {})


def missed_needle_regret(rounds: ArrayLike) -> NDArray[np.float64]:
    """Return the AoI regret no policy is below on an air that meets Theorem 3's conditions.

    One client, two channels. For half of the rounds both are good, then both are bad, except that
    in round 3T/4 one of them, drawn by a coin, is good. The better fixed channel catches it, and
    has had `T/2 + 1 > T/C` successes. Any policy misses it with probability ½, and is T/4 older for
    T/4 rounds: `T²/32`.

    Parameters
    ----------
    rounds : array of int >= 4, divisible by 4
        T.

    Notes
    -----
    **Deviations** (erratum E12). Theorem 3 promises `O(√T)` here. No policy has sub-linear AoI
    regret in all "extremely non-stationary" environments; for successes alone that is possible.

    Examples
    --------
    >>> (
    ...     float(missed_needle_regret(20_000)),
    ...     float(m_exp3_bound(1, 2, 20_000, "literal").value.round()),
    ... )
    (12500000.0, 3492.0)
    """
    horizon = whole_numbers("rounds", rounds, at_least=4)
    if (horizon % 4 != 0).any():
        raise ParameterError(f"rounds must be divisible by 4, got {rounds!r}")
    return np.asarray(horizon**2 / 32.0)
