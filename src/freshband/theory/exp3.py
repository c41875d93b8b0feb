"""Theorem 3: the AoI regret of M-Exp3, which treats every set of M channels as one arm."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from freshband.errors import ParameterError
from freshband.theory._inputs import (
    Array,
    Variant,
    is_literal,
    probabilities,
    problem,
    whole_numbers,
    worst_and_best,
)
from freshband.theory.bound import Bound
from freshband.theory.cost import age_cutoff

_E1 = math.e - 1.0
_log_gamma = np.vectorize(math.lgamma, otypes=[np.float64])


def n_super_arms(n_clients: ArrayLike, n_channels: ArrayLike) -> Array:
    """Return `|C(N,M)|`, the number of ways to choose M of N channels.

    Examples
    --------
    >>> n_super_arms([2, 4, 20], [5, 6, 30]).tolist()
    [10.0, 15.0, 30045015.0]
    """
    clients, channels, _ = problem(n_clients, n_channels, 1)
    log = _log_gamma(channels + 1.0)
    log = log - _log_gamma(clients + 1.0) - _log_gamma(channels - clients + 1.0)
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

    `R <= (n ρ + M/μ_min) / ν*` with `ρ = 2M√(e-1) √(TC ln C)`, `C = |C(N,M)|` and the `age_cutoff`
    n, for constant means and random matching. As printed, (21): `4M√(e-1) C² √(TC ln C)` under the
    conditions `T > 16(e-1) C³ ln C` and, if ``best`` is given, `G_max >= T/C`.

    **Deviations** (erratum E12). The printed bound is false, see `missed_needle_regret`: ages
    depend on *when* successes come. The corrected one needs the tuned γ, not the paper's 0.5, and
    the policy and the oracle must both match clients to channels at random.

    Parameters
    ----------
    n_clients, n_channels, rounds, variant, worst : shared, see freshband.theory
    best : array of float in (0, 1], optional
        `ν*`, the mean over the M best channels; needed by the corrected variant.

    Examples
    --------
    >>> bound = m_exp3_bound(2, 5, [20_000, 100_000], "literal")
    >>> bound.value.round(-4).tolist(), bound.holds.tolist()
    ([710000.0, 1590000.0], [False, True])
    >>> float(m_exp3_bound(2, 5, 20_000, worst=0.4, best=0.8).value.round(-2))
    89000.0
    """
    literal = is_literal(variant)
    clients, _, horizon = problem(n_clients, n_channels, rounds)
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
    low, high = worst_and_best(worst, best)
    value = (age_cutoff(rounds, low) * 2.0 * clients * spread + clients / low) / high
    return Bound(np.asarray(value), "upper", {})


def missed_needle_regret(rounds: ArrayLike) -> Array:
    """Return `T²/32`, a lower bound for every policy where Theorem 3's conditions hold.

    One client, two channels: good for half of the rounds, then bad except for one channel in round
    3T/4. Chapter "M-Exp3" has the proof.

    **Deviations** (erratum E12). Theorem 3 promises `O(√T)` here.

    Parameters
    ----------
    rounds : array of int >= 4, divisible by 4
        T.

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
