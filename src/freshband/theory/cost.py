"""The cost law: what a round on the wrong channel adds to the age, exactly.

Compare a policy with a benchmark that gives client i the channel of mean `μ*_i(t)` in round t,
whatever has happened. If the policy sends on a channel of mean `μ_i(t)` in round t and takes the
benchmark's from then on, the expected ages of all later rounds grow by

    (μ*_i(t) - μ_i(t)) a_i(t-1) W_i(t),    W_i(t) = Σ_{m=0}^{T-t} ∏_{j=1}^{m} (1 - μ*_i(t+j)),

because a success instead of a failure takes `a_i(t-1)` off the age, and what it takes off survives
a later round with probability `1 - μ*_i`. Changing one round after the other, from the last to the
first, turns the benchmark into the policy, so that

    R_i(T) = Σ_t E[(μ*_i(t) - μ_i(t)) a_i(t-1)] W_i(t)

for every policy that sees no state in advance, and for means that change in any way. With constant
`μ*` the weight `W` is `1/μ*` away from the horizon. Theorems 2 to 5 rest on this identity here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from freshband.errors import ParameterError
from freshband.theory.inputs import positive_numbers, probabilities, whole_numbers

__all__ = ["age_cutoff", "ahead_weight", "any_policy_regret", "regret_terms"]


def ahead_weight(best_means: ArrayLike) -> NDArray[np.float64]:
    """Return `W(t)`: in how many rounds, t included, an age lost in round t is still felt.

    Parameters
    ----------
    best_means : array of float in [0, 1], shape (rounds, ...)
        `μ*(t)`, the means of the benchmark's channels in rounds 1 … T.

    Returns
    -------
    float64 array, shape (rounds, ...)
        At least 1, and at most `1 / min μ*`.

    Examples
    --------
    >>> ahead_weight([0.5, 0.5, 0.5]).tolist()
    [1.75, 1.5, 1.0]
    """
    mu = probabilities("best_means", best_means)
    if mu.ndim == 0:
        raise ParameterError("best_means must have the shape (rounds, ...), got a single number")
    weights = np.ones(mu.shape)
    for t in range(len(mu) - 2, -1, -1):
        weights[t] = 1.0 + (1.0 - mu[t + 1]) * weights[t + 1]
    return weights


def regret_terms(
    best_means: ArrayLike, means: ArrayLike, ages_before: ArrayLike
) -> NDArray[np.float64]:
    """Return what each round contributes to the AoI regret, given the age it began with.

    The mean over runs of the sum over rounds is the regret of (14), exactly; and with less noise
    than the difference of two simulated ages, since the states of this round are averaged over.

    Parameters
    ----------
    best_means : array of float in [0, 1], shape (rounds, ...)
        `μ*_i(t)`: means of the benchmark's channels.
    means : array of float in [0, 1], shape (rounds, ...)
        `μ_i(t)`: means of the channels the policy used.
    ages_before : array of float >= 0, shape (rounds, ...)
        `a_i(t-1)`, the policy's ages before the round (clock ``"pre"`` of `aoi.ages_of`).

    Returns
    -------
    float64 array, shape (rounds, ...)
        `(μ* - μ) a W`, in rounds of age. Negative where the policy's channel is the better one.

    Notes
    -----
    **Deviations.** The paper has no such law. Its step (61) multiplies `P(wrong channel)` by the
    oracle's mean age `1/μ*` as if the two were independent, which they need not be (erratum E11);
    the identity shows that the result is right all the same, because `a_i(t-1) >= 1`.

    Examples
    --------
    A first round on a channel of mean 0.3 instead of 0.5, and two more rounds:

    >>> regret_terms([0.5, 0.5, 0.5], [0.3, 0.5, 0.5], [1, 1, 1]).round(3).tolist()
    [0.35, 0.0, 0.0]
    """
    weights = ahead_weight(best_means)
    gap = probabilities("best_means", best_means) - probabilities("means", means)
    return np.asarray(gap * positive_numbers("ages_before", ages_before, or_zero=True) * weights)


def age_cutoff(rounds: ArrayLike, worst: ArrayLike) -> NDArray[np.float64]:
    """Return an age that is exceeded, over a run, by one round in the mean: `n`.

    Whatever a policy does, `P(a > n) <= (1 - μ_min)^n`, so that with
    `n = ⌈ln T / ln(1/(1 - μ_min))⌉` the sum `Σ_t E[(a(t) - n)⁺]` is at most `1/μ_min`. Ages up to
    n are paid for by the number of wrong rounds, ages beyond by this constant.

    Parameters
    ----------
    rounds : array of int >= 1
        T.
    worst : array of float in (0, 1]
        `μ_min`, the least mean of any channel in any round.

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
) -> NDArray[np.float64]:
    """Return the largest regret any policy can have: an upper bound above it says nothing.

    All clients always on channels of mean ``worst``, against all on channels of mean ``best``.

    Parameters
    ----------
    n_clients : array of int >= 1
        M.
    rounds : array of int >= 1
        T.
    worst, best : array of float in (0, 1]
        `μ_min` and the mean of the benchmark's channels.

    Examples
    --------
    >>> float(any_policy_regret(2, 20_000, 0.1, 0.8).round())
    349838.0
    """
    clients = whole_numbers("n_clients", n_clients, at_least=1)
    horizon = whole_numbers("rounds", rounds, at_least=1)

    def total(mu: NDArray[np.float64]) -> NDArray[np.float64]:
        lost = 1.0 - mu  # Σ_{t=1}^{T} (1 - (1-μ)^{t+1}) / μ
        return np.asarray(horizon / mu - lost**2 * (1.0 - lost**horizon) / mu**2)

    low = total(probabilities("worst", worst, above_zero=True))
    return np.asarray(clients * (low - total(probabilities("best", best, above_zero=True))))
