"""Theorems 2 and 4: what no policy can do better than.

A lower bound is about the worst of a family of airs, constructed for the purpose: `½ + ε` on M
channels nobody can tell from the others, `½` on those, and ε so small that telling takes long.
Regret is against the mean of the best channels; which client gets which of them does not matter,
since they are equally good.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from freshband.errors import ParameterError
from freshband.theory.bound import Bound
from freshband.theory.inputs import (
    Variant,
    at_most,
    is_literal,
    numbers,
    whole_numbers,
)

__all__ = ["adversarial_lower_bound", "piecewise_lower_bound", "segments_lower_bound"]

Array = NDArray[np.float64]


def adversarial_lower_bound(
    n_clients: ArrayLike,
    n_channels: ArrayLike,
    rounds: ArrayLike,
    variant: Variant = "corrected",
    *,
    epsilon: Literal["paper", "best"] | ArrayLike = "paper",
) -> Bound:
    """Return the AoI regret every policy has on some stationary air (Theorem 2).

    `R >= (ε/p) M [T - MT/N - (MT/2) √((T/N) ln(1/(1-4ε²))) - (1-p)/p]` with `p = ½ + ε`. For large
    T that is `3/8 (N-M)²/N² √(NT)` with the paper's `ε = (N-M)/(4M√(NT))`, and `1/2` in place of
    `3/8` with twice that.

    Parameters
    ----------
    n_clients : array of int >= 1
        M.
    n_channels : array of int >= n_clients
        N.
    rounds : array of int >= 1
        T.
    variant : {"corrected", "literal"}, default "corrected"
        What is proved, or (67) as printed, which lacks the last term.
    epsilon : {"paper", "best"} or array of float in (0, 1/2), default "paper"
        ε, by how much the good channels are better.

    Returns
    -------
    Bound
        Lower; 0 where the formula is negative or ε not below 1/2.

    Notes
    -----
    **Deviations** (erratum E11). Step (61) takes the oracle's age to be independent of the policy's
    choice, and a policy may well choose to explore when ages are low. The cost law (`cost`) gives
    the same factor `ε/p` without that, because no age is below 1, and takes `(1-p)/p < 1` off per
    client for the end of the run. The coupling variable must be drawn per client, not per round.

    Examples
    --------
    >>> bound = adversarial_lower_bound(2, 5, [1000, 20_000])
    >>> bound.value.round(1).tolist()
    [9.4, 42.6]
    """
    literal = is_literal(variant)
    clients, channels, horizon = _problem(n_clients, n_channels, rounds)
    gap = _epsilon(epsilon, clients, channels, horizon)
    value = _stationary(clients, channels, horizon, gap, literal=literal)
    return Bound(value, "lower", {"epsilon < 1/2": np.asarray(gap < 0.5)})


def segments_lower_bound(
    n_clients: ArrayLike,
    n_channels: ArrayLike,
    rounds: ArrayLike,
    n_segments: ArrayLike,
    *,
    epsilon: Literal["paper", "best"] | ArrayLike = "paper",
) -> Bound:
    """Return the AoI regret every policy has on some air with that many segments.

    The good channels of Theorem 2 are drawn anew in each of S segments of `⌊T/S⌋` rounds. What was
    learnt in one is of no use in the next, so that regrets add up: about
    `3/8 (N-M)²/N² √(SNT)`, which grows with the number of segments as Theorem 5's bound does.

    Parameters
    ----------
    n_clients, n_channels, rounds : array of int
        M, N and T, as in `adversarial_lower_bound`.
    n_segments : array of int, 1 <= n_segments <= rounds
        S; at most S - 1 breakpoints.
    epsilon : {"paper", "best"} or array of float in (0, 1/2), default "paper"
        For horizon `⌊T/S⌋`.

    Notes
    -----
    **Deviations** (erratum E13). The paper has no such theorem; it is what Theorem 4 should say.

    Examples
    --------
    >>> segments_lower_bound(2, 5, 20_000, [1, 6]).value.round(1).tolist()
    [42.6, 103.9]
    """
    clients, channels, horizon = _problem(n_clients, n_channels, rounds)
    segments = whole_numbers("n_segments", n_segments, at_least=1)
    at_most("n_segments", segments, "rounds", horizon)
    length = np.floor(horizon / segments)
    gap = _epsilon(epsilon, clients, channels, length)
    value = segments * _stationary(clients, channels, length, gap, literal=False)
    return Bound(np.asarray(value), "lower", {"epsilon < 1/2": np.asarray(gap < 0.5)})


def piecewise_lower_bound(
    n_clients: ArrayLike,
    n_channels: ArrayLike,
    rounds: ArrayLike,
    variant: Variant = "corrected",
) -> Bound:
    """Return Theorem 4's lower bound, for policies that seldom try the last M channels.

    All means are `½`, but in one of K = N intervals of `τ = ⌊T/N⌋` rounds the last M channels have
    `p = ½ + ε`, `ε = √(N/(MT))`. A policy that plays those at most `Mτ` times in all where every
    mean is `½` has a regret of at least

        (ε/p) [Mτ - Mτ/N - (Mτ/2) √((Mτ/N) ln(1/(1-4ε²))) - M(1-p)/p]

    in the worst interval: about `2√(MT/N) (1 - 1/N - 1/√N)`.

    Parameters
    ----------
    n_clients : array of int >= 1
        M.
    n_channels : array of int >= n_clients
        N, and the number of intervals K.
    rounds : array of int >= 1
        T.
    variant : {"corrected", "literal"}, default "corrected"
        What is proved, or (74) as printed.

    Returns
    -------
    Bound
        Lower; 0 where the formula is negative. The condition ``every policy`` is whether *some* M
        channels are played so seldom by whatever policy: only for one client. For more, the bound
        is about the policies described, and `segments_lower_bound` about all.

    Notes
    -----
    **Deviations** (erratum E13). (1) Step (72) takes `Σ_j √x_j` for `√(Σ_j x_j)`; it is up to `√K`
    times as large. (2) The bound on the plays is an assumption, and no policy that treats channels
    alike meets it with two or more clients. (3) The air must have no good channels outside the
    special interval; with the printed ones, changing the interval changes the law of what is seen
    on them too, and (71) fails. (4) For fixed M it falls as N grows, and a stationary air is
    piecewise stationary: Theorem 2 and `segments_lower_bound` say more.

    Examples
    --------
    >>> bound = piecewise_lower_bound(2, 5, 20_000)
    >>> round(float(bound.value), 1), bound.failing
    (61.7, ['every policy'])
    >>> round(float(piecewise_lower_bound(2, 5, 20_000, "literal").value), 1)
    105.0
    """
    literal = is_literal(variant)
    clients, channels, horizon = _problem(n_clients, n_channels, rounds)
    gap = np.sqrt(channels / (clients * horizon))
    good = 0.5 + gap
    length = horizon / channels if literal else np.floor(horizon / channels)
    plays = clients * length
    doubt = plays / 2.0 * np.sqrt(plays * _information(gap) / channels)
    if literal:
        left = plays - plays / channels - doubt / np.sqrt(channels)
    else:
        left = plays - plays / channels - doubt - clients * (1.0 - good) / good
    value = np.where(gap < 0.5, np.maximum(gap / good * left, 0.0), 0.0)
    return Bound(
        value,
        "lower",
        {
            "epsilon < 1/2": np.asarray(gap < 0.5),
            "n_channels >= 3": np.asarray(channels >= 3),
            "every policy": np.broadcast_to(clients == 1, value.shape),
        },
    )


def _stationary(
    clients: Array, channels: Array, horizon: Array, gap: Array, *, literal: bool
) -> Array:
    """Theorem 2 for given ε: plays of good channels are bounded by Pinsker's inequality."""
    good = 0.5 + gap
    doubt = clients * horizon / 2.0 * np.sqrt(horizon / channels * _information(gap))
    left = horizon - clients * horizon / channels - doubt
    if not literal:
        left = left - (1.0 - good) / good
    value = gap / good * clients * left
    return np.where(gap < 0.5, np.maximum(value, 0.0), 0.0)


def _information(gap: Array) -> Array:
    """Twice the Kullback-Leibler divergence of B(½) from B(½ + ε): ln(1/(1-4ε²))."""
    inside = np.minimum(4.0 * gap**2, 1.0 - 1e-15)
    return np.asarray(-np.log1p(-inside))


def _epsilon(
    epsilon: Literal["paper", "best"] | ArrayLike, clients: Array, channels: Array, horizon: Array
) -> Array:
    if isinstance(epsilon, str):
        if epsilon not in ("paper", "best"):
            raise ParameterError(
                f"epsilon must be 'paper', 'best' or numbers in (0, 1/2), got {epsilon!r}"
            )
        share = 4.0 if epsilon == "paper" else 2.0
        return np.asarray((channels - clients) / (share * clients * np.sqrt(channels * horizon)))
    given = numbers("epsilon", epsilon, "'paper', 'best' or numbers in (0, 1/2)")
    if not ((given > 0) & (given < 0.5)).all():
        raise ParameterError(
            f"epsilon must be 'paper', 'best' or numbers in (0, 1/2), got {epsilon!r}"
        )
    return given


def _problem(
    n_clients: ArrayLike, n_channels: ArrayLike, rounds: ArrayLike
) -> tuple[Array, Array, Array]:
    clients = whole_numbers("n_clients", n_clients, at_least=1)
    channels = whole_numbers("n_channels", n_channels, at_least=1)
    at_most("n_clients", clients, "n_channels", channels)
    return clients, channels, whole_numbers("rounds", rounds, at_least=1)
