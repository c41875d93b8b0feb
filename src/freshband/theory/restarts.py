"""Lemmas 3 and 4 and Theorem 5: the AoI regret of GLR-CUCB.

Lemma 3 turns rounds on a wrong channel into ages, Lemma 4 bounds the number of wrong rounds, and
Theorem 5 combines the two. Lemma 4, and therefore Theorem 5, give orders of growth: their constants
come from another paper and are unknown here, so ``constant`` is 1 by default. Chapter "GLR-CUCB"
has the proofs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from freshband.errors import ParameterError
from freshband.theory._inputs import (
    Array,
    Flags,
    Variant,
    at_most,
    is_literal,
    positive_numbers,
    probabilities,
    problem,
    whole_numbers,
    worst_and_best,
)
from freshband.theory.age import rotation_age
from freshband.theory.bound import Bound
from freshband.theory.cost import age_cutoff


def age_sum_bound(
    best_means: ArrayLike,
    rounds: ArrayLike,
    wrong: ArrayLike,
    *,
    worst: ArrayLike,
    variant: Variant = "corrected",
) -> Bound:
    """Return an upper bound on a client's summed expected ages, stationary channels (Lemma 3).

    `Σ_t E[a_i(t)] <= ⌈T/M⌉ Σ_φ E[a | φ] + W Δ (n B + 1/μ_min)`, where the benchmark takes turns on
    the M best channels (`rotation_age`), `Δ = μ_1 - μ_min`, `W <= 1/μ_M` is the largest weight of
    the cost law, and n is the `age_cutoff`. As printed, (22), Q depends on an unbound t; here it is
    averaged over the phases.

    **Deviations** (erratum E14). The printed proof bounds `E[a | wrong]` by `1/μ_min`, although a
    policy may choose wrong channels just when ages are large; and Q lacks the 1 of erratum E2.

    Parameters
    ----------
    best_means : array of float in (0, 1], shape (..., M)
        Means of the M best channels in the order in which a client meets them.
    wrong : array of float >= 0
        B, the expected number of rounds with `k_i(t) ≠ k*_i(t)`.
    rounds, worst, variant : shared, see freshband.theory

    Examples
    --------
    >>> bound = age_sum_bound([0.9, 0.5], 1000, 20, worst=0.3)
    >>> float(bound.value.round(1))  # two turns cost 1368 without a wrong round
    1750.5
    """
    literal = is_literal(variant)
    mu = probabilities("best_means", best_means, above_zero=True, shape="(..., M)")
    horizon = whole_numbers("rounds", rounds, at_least=1)
    missed = positive_numbers("wrong", wrong, or_zero=True)
    low = probabilities("worst", worst, above_zero=True)
    at_most("worst", low, "the least of best_means", mu.min(axis=-1))
    clients = mu.shape[-1]
    if literal:
        with np.errstate(divide="ignore"):
            c = -1.0 / np.log(np.prod(1.0 - mu, axis=-1))
        window = clients * c * np.log(horizon)  # c' ln T
        value = _printed_q(mu, horizon, window) + (window + 1.0 + window * missed) / low
        return Bound(np.asarray(value), "upper", {})
    turns = np.ceil(horizon / clients) * clients * rotation_age(mu)
    ahead = rotation_age(mu[..., ::-1], by_phase=True).max(axis=-1)  # the same sum, forwards
    gap = mu.max(axis=-1) - low
    value = turns + ahead * gap * (age_cutoff(horizon, low) * missed + 1.0 / low)
    return Bound(np.asarray(value), "upper", {})


def smallest_gap(means: ArrayLike, n_clients: int, variant: Variant = "corrected") -> Array:
    """Return Δ_min, the difference between the best sum of M means and the next best.

    **Deviations** (erratum E14): as printed the bound of Lemma 4 divides by 0.

    Parameters
    ----------
    means : array of float in [0, 1], shape (..., N)
        Means of the channels.
    n_clients : int in [1, N]
        M.
    variant : {"corrected", "literal"}, default "corrected"
        The least over sets that are worse, infinite if none is; or as printed the least over all
        rounds, which is 0 as soon as one round is right.

    Examples
    --------
    >>> smallest_gap([0.9, 0.4, 0.7, 0.1], 2).round(12).tolist()  # 0.7 against 0.4
    0.3
    """
    mu = np.sort(probabilities("means", means), axis=-1)[..., ::-1]
    clients = int(whole_numbers("n_clients", n_clients, at_least=1))
    if mu.ndim == 0 or clients > mu.shape[-1]:
        raise ParameterError(f"means must have the shape (..., N), N >= {clients}, got {mu.shape}")
    if is_literal(variant):
        return np.zeros(mu.shape[:-1])
    swaps = mu[..., :clients, None] - mu[..., None, clients:]  # exchange one channel
    swaps = np.where(swaps > 0, swaps, np.inf).reshape(*mu.shape[:-1], -1)
    return np.asarray(swaps.min(axis=-1, initial=np.inf))


def wrong_rounds(
    n_channels: ArrayLike,
    rounds: ArrayLike,
    n_segments: ArrayLike,
    *,
    known: bool = False,
    gap: ArrayLike | None = None,
    constant: ArrayLike = 1.0,
    variant: Variant = "corrected",
) -> Bound:
    """Return the order of the number of rounds in which GLR-CUCB plays a wrong set (Lemma 4).

    `√(C_T N T ln T)` if the number of segments is known, `C_T √(N T ln T)` if not; corrected,
    divided by Δ_min, and at most T.

    **Deviations** (erratum E14). Δ_min is the least gap of sub-optimal sets; the paper counts
    segments here and breakpoints in its experiments.

    Parameters
    ----------
    n_channels, rounds, n_segments, variant : shared, see freshband.theory
    known : bool, default False
        Whether the policy knows `C_T`.
    gap : array of float > 0
        `Δ_min`, see `smallest_gap`; corrected variant only.
    constant : array of float > 0, default 1
        The constant of the order, which the paper does not state.

    Examples
    --------
    >>> float(wrong_rounds(5, 20_000, 6, gap=0.2).value.round())
    20000.0
    >>> float(wrong_rounds(5, 20_000, 6, known=True, variant="literal").value.round())
    2438.0
    """
    literal = is_literal(variant)
    channels = whole_numbers("n_channels", n_channels, at_least=1)
    horizon = whole_numbers("rounds", rounds, at_least=1)
    segments = whole_numbers("n_segments", n_segments, at_least=1)
    scale = positive_numbers("constant", constant)
    order = scale * _segment_factor(segments, known) * np.sqrt(channels * horizon * np.log(horizon))
    if literal:
        return Bound(np.asarray(order), "upper", {})
    if gap is None:
        raise ParameterError("gap must be given with variant='corrected'")
    value = np.minimum(order / positive_numbers("gap", gap), horizon)
    return Bound(np.asarray(value), "upper", {"constant is known": np.asarray(False)})


def glr_cucb_bound(
    n_clients: ArrayLike,
    n_channels: ArrayLike,
    rounds: ArrayLike,
    n_segments: ArrayLike,
    variant: Variant = "corrected",
    *,
    known: bool = False,
    worst: ArrayLike | None = None,
    best: ArrayLike | None = None,
    gap: ArrayLike | None = None,
    wrong: ArrayLike | None = None,
    constant: ArrayLike = 1.0,
) -> Bound:
    """Return the upper bound on the AoI regret of GLR-CUCB (Theorem 5).

    `R <= (1 - μ_min)/μ*_min (n B + M/μ_min)` with the `age_cutoff` n. As printed, an order:
    `M√(C_T N T ln³T)` if the number of segments is known, `M C_T √(N T ln³T)` if not.

    **Deviations** (erratum E14). (27) and (28) print c for c' = Mc, condition on events that depend
    on the ages, and take an equal set for an equal channel of every client.

    Parameters
    ----------
    n_clients, n_channels, rounds, n_segments, variant, worst : shared, see freshband.theory
    known, constant : as in wrong_rounds
    best : array of float in (0, 1]
        `μ*_min`: the least mean of a channel the oracle uses, in any segment; corrected variant
        only, as ``gap`` and ``wrong``.
    gap : array of float > 0
        `Δ_min`, see `smallest_gap`; not needed with ``wrong``.
    wrong : array of float >= 0, optional
        B, the number of times that a client is not on the oracle's channel, over all clients and
        rounds. By default M times `wrong_rounds`; the conditions then say that the constant of
        Lemma 4 is not known and, with several clients, that a policy on the right *set* may give
        its channels to other clients than the oracle does.

    Examples
    --------
    >>> round(float(glr_cucb_bound(2, 5, 20_000, 6, "literal").value), -2)
    118300.0
    >>> float(glr_cucb_bound(2, 5, 20_000, 6, worst=0.3, best=0.6, wrong=2000).value.round())
    65341.0
    """
    literal = is_literal(variant)
    clients, channels, horizon = problem(n_clients, n_channels, rounds)
    segments = whole_numbers("n_segments", n_segments, at_least=1)
    if literal:
        growth = np.sqrt(channels * horizon * np.log(horizon) ** 3)
        scale = positive_numbers("constant", constant)
        value = scale * clients * _segment_factor(segments, known) * growth
        return Bound(np.asarray(value), "upper", {"constant is known": np.asarray(False)})
    low, high = worst_and_best(worst, best)
    conditions: dict[str, Flags] = {}
    if wrong is None:
        lemma = wrong_rounds(channels, horizon, segments, known=known, gap=gap, constant=constant)
        missed = clients * lemma.value
        same_order = {"same order as the oracle within the set": np.asarray(clients == 1)}
        conditions = {**lemma.conditions, **same_order}
    else:
        missed = positive_numbers("wrong", wrong, or_zero=True)
    value = (1.0 - low) / high * (age_cutoff(horizon, low) * missed + clients / low)
    return Bound(np.asarray(value), "upper", conditions)


def _segment_factor(segments: Array, known: bool) -> Array:
    return np.sqrt(segments) if known else segments


def _printed_q(mu: Array, horizon: Array, window: Array) -> Array:
    """Q of Lemma 3: a truncated sum of Lemma 2, mean over the phases, times T - c' ln T."""
    lead = np.broadcast_shapes(mu.shape[:-1], window.shape)
    total = np.zeros((*lead, mu.shape[-1]))
    lost = np.ones_like(total)
    for turn in range(int(np.max(window)) + 1):
        lost = lost * (1.0 - np.roll(mu, turn, axis=-1))
        total = total + np.where(turn <= window[..., None], lost, 0.0)
    return np.asarray(total.mean(axis=-1) * (horizon - window))
