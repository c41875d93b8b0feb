"""The cost law: exactly how much age a round on the wrong channel adds.

`R_i(T) = Σ_t E[(μ*_i(t) - μ_i(t)) a_i(t-1)] W_i(t)` for every policy that sees no state in advance,
against a benchmark that gives client i the channel of mean `μ*_i(t)` in round t, whatever has
happened. Chapter "The cost law" has the proof; Theorems 2 to 5 rest on this identity.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from freshband.theory._inputs import Array, positive_numbers, probabilities, whole_numbers


def ahead_weight(best_means: ArrayLike) -> Array:
    """Return `W(t)`, the expected number of rounds, from t on, in which a loss in round t counts.

    `W(t) = Σ_{m=0}^{T-t} ∏_{j=1}^{m} (1 - μ*(t+j))`, at least 1 and at most `1 / min μ*`.

    Parameters
    ----------
    best_means : array of float in [0, 1], shape (rounds, ...)
        `μ*(t)`, the means of the benchmark's channels in rounds 1 … T.

    Examples
    --------
    >>> ahead_weight([0.5, 0.5, 0.5]).tolist()
    [1.75, 1.5, 1.0]
    """
    mu = probabilities("best_means", best_means, shape="(rounds, ...)")
    weights = np.ones(mu.shape)
    for t in range(len(mu) - 2, -1, -1):
        weights[t] = 1.0 + (1.0 - mu[t + 1]) * weights[t + 1]
    return weights


def regret_terms(best_means: ArrayLike, means: ArrayLike, ages_before: ArrayLike) -> Array:
    """Return what each round contributes to the AoI regret (14): `(μ* - μ) a W`.

    The mean over runs of the sum over rounds is exactly the regret. A term is negative where the
    policy's channel is the better one.

    **Deviations.** The paper has no such law; its step (61) is wrong (erratum E11).

    Parameters
    ----------
    best_means : array of float in [0, 1], shape (rounds, ...)
        `μ*_i(t)`: means of the benchmark's channels.
    means : array of float in [0, 1], shape (rounds, ...)
        `μ_i(t)`: means of the channels the policy used.
    ages_before : array of float >= 0, shape (rounds, ...)
        `a_i(t-1)`, the policy's ages before the round (clock ``"pre"`` of `aoi.ages_of`).

    Examples
    --------
    A first round on a channel of mean 0.3 instead of 0.5, and two more rounds:

    >>> regret_terms([0.5, 0.5, 0.5], [0.3, 0.5, 0.5], [1, 1, 1]).round(3).tolist()
    [0.35, 0.0, 0.0]
    """
    weights = ahead_weight(best_means)
    gap = probabilities("best_means", best_means) - probabilities("means", means)
    return np.asarray(gap * positive_numbers("ages_before", ages_before, or_zero=True) * weights)


def age_cutoff(rounds: ArrayLike, worst: ArrayLike) -> Array:
    """Return the age n beyond which ages hardly matter: `Σ_t E[(a(t) - n)⁺] <= 1/μ_min`.

    `n = ⌈ln T / ln(1/(1 - μ_min))⌉`, since `P(a > n) <= (1 - μ_min)^n` for every policy.

    Parameters
    ----------
    rounds, worst : shared, see freshband.theory

    Examples
    --------
    >>> age_cutoff(20_000, [0.1, 0.5, 1.0]).tolist()
    [94.0, 15.0, 1.0]
    """
    horizon = whole_numbers("rounds", rounds, at_least=1)
    mu = probabilities("worst", worst, above_zero=True)
    with np.errstate(divide="ignore"):
        cutoff = np.ceil(np.log(horizon) / -np.log1p(-mu))
    return np.maximum(cutoff, 1.0)


def any_policy_regret(
    n_clients: ArrayLike, rounds: ArrayLike, worst: ArrayLike, best: ArrayLike
) -> Array:
    """Return the largest regret any policy can have; an upper bound above it is useless.

    It is the regret of M clients always on channels of mean ``worst``, against mean ``best``.

    Parameters
    ----------
    n_clients, rounds, worst : shared, see freshband.theory
    best : array of float in (0, 1]
        The mean of the benchmark's channels.

    Examples
    --------
    >>> float(any_policy_regret(2, 20_000, 0.1, 0.8).round())
    349838.0
    """
    clients = whole_numbers("n_clients", n_clients, at_least=1)
    horizon = whole_numbers("rounds", rounds, at_least=1)

    def total(mu: Array) -> Array:
        lost = 1.0 - mu  # Σ_{t=1}^{T} (1 - (1-μ)^{t+1}) / μ
        return np.asarray(horizon / mu - lost**2 * (1.0 - lost**horizon) / mu**2)

    low = total(probabilities("worst", worst, above_zero=True))
    return np.asarray(clients * (low - total(probabilities("best", best, above_zero=True))))
