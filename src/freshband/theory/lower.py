"""Theorems 2 and 4: lower bounds on the regret of every policy.

A lower bound is about the worst of a family of airs (channel environments): M channels have mean
`½ + ε`, the others `½`, and ε is so small that it takes long to tell them apart. Regret is
against the mean of the best channels, so it does not matter which client gets which of them.
Chapter "Lower bounds" has the proofs.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from freshband.errors import ParameterError
from freshband.theory._inputs import (
    Array,
    Variant,
    at_most,
    is_literal,
    numbers,
    problem,
    whole_numbers,
)
from freshband.theory.bound import Bound

_Epsilon: TypeAlias = Literal["paper", "best"] | ArrayLike


def adversarial_lower_bound(
    n_clients: ArrayLike,
    n_channels: ArrayLike,
    rounds: ArrayLike,
    variant: Variant = "corrected",
    *,
    epsilon: _Epsilon = "paper",
) -> Bound:
    """Return a lower bound on every policy's AoI regret on some stationary air (Theorem 2).

    `R >= (ε/p) M [T - MT/N - (MT/2) √((T/N) ln(1/(1-4ε²))) - (1-p)/p]` with `p = ½ + ε`: for large
    T about `3/8 (N-M)²/N² √(NT)`. It is 0 where the formula is negative or ε is not below 1/2. As
    printed, (67), the last term is missing.

    **Deviations** (erratum E11). Step (61) takes the oracle's age to be independent of the policy's
    choice. The cost law gives the same factor `ε/p` without that, less `(1-p)/p < 1` per client.

    Parameters
    ----------
    n_clients, n_channels, rounds, variant : shared, see freshband.theory
    epsilon : {"paper", "best"} or array of float in (0, 1/2), default "paper"
        The advantage ε of the good channels: the paper's `(N-M)/(4M√(NT))`, or twice that,
        which gives `1/2` in place of `3/8`.

    Examples
    --------
    >>> bound = adversarial_lower_bound(2, 5, [1000, 20_000])
    >>> bound.value.round(1).tolist()
    [9.4, 42.6]
    """
    literal = is_literal(variant)
    clients, channels, horizon = problem(n_clients, n_channels, rounds)
    gap = _read_epsilon(epsilon, clients, channels, horizon)
    value = _stationary(clients, channels, horizon, gap, literal=literal)
    return Bound(value, "lower", {"epsilon < 1/2": np.asarray(gap < 0.5)})


def segments_lower_bound(
    n_clients: ArrayLike,
    n_channels: ArrayLike,
    rounds: ArrayLike,
    n_segments: ArrayLike,
    *,
    epsilon: _Epsilon = "paper",
) -> Bound:
    """Return a lower bound on every policy's AoI regret on some air with S segments.

    It is S times the bound of Theorem 2 for `⌊T/S⌋` rounds, about `3/8 (N-M)²/N² √(SNT)`: the good
    channels are drawn again in each segment. S is at most T.

    **Deviations** (erratum E13). The paper has no such theorem; it is what Theorem 4 should say.

    Parameters
    ----------
    n_clients, n_channels, rounds, n_segments : shared, see freshband.theory
    epsilon : {"paper", "best"} or array of float in (0, 1/2), default "paper"
        As in `adversarial_lower_bound`, for `⌊T/S⌋` rounds.

    Examples
    --------
    >>> segments_lower_bound(2, 5, 20_000, [1, 6]).value.round(1).tolist()
    [42.6, 103.9]
    """
    clients, channels, horizon = problem(n_clients, n_channels, rounds)
    segments = whole_numbers("n_segments", n_segments, at_least=1)
    at_most("n_segments", segments, "rounds", horizon)
    length = np.floor(horizon / segments)
    gap = _read_epsilon(epsilon, clients, channels, length)
    value = segments * _stationary(clients, channels, length, gap, literal=False)
    return Bound(np.asarray(value), "lower", {"epsilon < 1/2": np.asarray(gap < 0.5)})


def piecewise_lower_bound(
    n_clients: ArrayLike,
    n_channels: ArrayLike,
    rounds: ArrayLike,
    variant: Variant = "corrected",
) -> Bound:
    """Return Theorem 4's lower bound, for policies that seldom try the last M channels.

    `(ε/p) [Mτ - Mτ/N - (Mτ/2) √((Mτ/N) ln(1/(1-4ε²))) - M(1-p)/p]` with `p = ½ + ε`, `ε =
    √(N/(MT))` and `τ = ⌊T/N⌋`, about `2√(MT/N) (1 - 1/N - 1/√N)`; 0 where it is negative. As
    printed it is (74). It is about policies that play those channels at most `Mτ` times where every
    mean is `½`. The condition ``every policy`` says whether all policies do, which is true only for
    one client; `segments_lower_bound` is about all policies.

    **Deviations** (erratum E13). Step (72) takes `Σ_j √x_j` for `√(Σ_j x_j)`; the bound on the
    plays is an assumption; and the printed air must not have good channels outside the special
    interval.

    Parameters
    ----------
    n_clients, n_channels, rounds, variant : shared, see freshband.theory

    Examples
    --------
    >>> bound = piecewise_lower_bound(2, 5, 20_000)
    >>> round(float(bound.value), 1), bound.failing
    (61.7, ['every policy'])
    >>> round(float(piecewise_lower_bound(2, 5, 20_000, "literal").value), 1)
    105.0
    """
    literal = is_literal(variant)
    clients, channels, horizon = problem(n_clients, n_channels, rounds)
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
    conditions = {
        "epsilon < 1/2": np.asarray(gap < 0.5),
        "n_channels >= 3": np.asarray(channels >= 3),
        "every policy": np.broadcast_to(clients == 1, value.shape),
    }
    return Bound(value, "lower", conditions)


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


def _read_epsilon(epsilon: _Epsilon, clients: Array, channels: Array, horizon: Array) -> Array:
    allowed = "'paper', 'best' or numbers in (0, 1/2)"
    if not isinstance(epsilon, str):
        return numbers("epsilon", epsilon, allowed, lambda x: (x > 0) & (x < 0.5))
    if epsilon not in ("paper", "best"):
        raise ParameterError(f"epsilon must be {allowed}, got {epsilon!r}")
    share = 4.0 if epsilon == "paper" else 2.0
    return np.asarray((channels - clients) / (share * clients * np.sqrt(channels * horizon)))
