"""Expected ages in closed form: Lemmas 1 and 2, and the age under rotation.

Ages run on the clock of equation (8): `a(t) = 1` in a round whose update got through, else `a(t-1)
+ 1`. In round t the client's channel is Good with probability `μ_t`, independently of the past, so
that `E[a(t)] = 1 + (1 - μ_t) E[a(t-1)]`. Chapter "Ages" has the proofs.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from freshband.errors import ParameterError
from freshband.theory._inputs import (
    Array,
    Variant,
    at_most,
    is_literal,
    numbers,
    probabilities,
    whole_numbers,
)


def expected_age(means: ArrayLike, variant: Variant = "corrected", *, start: float = 1.0) -> Array:
    """Return the expected age in every round, for channels of any means (Lemma 2).

    `E[a(t)] = 1 + Σ_{τ=0}^{t-1} ∏_{k=0}^{τ} (1 - μ_{t-k})` where `a(0) = 1`.

    **Deviations** (erratum E2). The printed sum lacks the leading 1.

    Parameters
    ----------
    means : array of float in [0, 1], shape (rounds, ...)
        `μ_t`, the mean of the channel the client uses in round t = 1, 2, …; further axes are
        further clients.
    variant : shared, see freshband.theory
        (15) is the printed formula.
    start : float >= 1, default 1
        The age `a(0)`; with ``literal`` only 1.

    Examples
    --------
    >>> expected_age([0.5, 0.5, 0.0, 1.0]).tolist()
    [1.5, 1.75, 2.75, 1.0]
    >>> expected_age([0.5, 0.5, 0.0, 1.0], variant="literal").tolist()
    [0.5, 0.75, 1.75, 0.0]
    """
    mu = probabilities("means", means, shape="(rounds, ...)")
    literal = is_literal(variant)
    age = np.full(mu.shape[1:], _start(start, literal))
    ages = np.empty(mu.shape)
    for t in range(len(mu)):
        age = 1.0 + (1.0 - mu[t]) * age
        ages[t] = age
    return ages - 1.0 if literal else ages


def constant_age(
    mean: ArrayLike,
    t: ArrayLike | None = None,
    variant: Variant = "corrected",
    *,
    start: float = 1.0,
) -> Array:
    """Return the expected age on a channel of constant mean (Lemma 2).

    `E[a(t)] = (1 - (1-μ)^{t+1}) / μ` where `a(0) = 1`, and `1/μ` in the long run.

    Parameters
    ----------
    mean : array of float in [0, 1]
        `μ`. In the long run the age is infinite where it is 0.
    t : array of int >= 0, optional
        The round; by default the result is the long-run value. Broadcast against ``mean``.
    variant : {"corrected", "literal"}, default "corrected"
        The truth, or equation (15) as printed: one less (erratum E2).
    start : float >= 1, default 1
        The age `a(0)`, which does not matter in the long run; with ``literal`` only 1.

    Examples
    --------
    >>> float(constant_age(0.2)), float(constant_age(0.2, variant="literal"))
    (5.0, 4.0)
    >>> constant_age(0.3, [0, 1, 3, 10]).round(3).tolist()
    [1.0, 1.7, 2.533, 3.267]
    """
    mu = probabilities("mean", mean)
    literal = is_literal(variant)
    initial = _start(start, literal)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ages = 1.0 / mu
        if t is not None:
            rounds = whole_numbers("t", t, at_least=0)
            # ln of the chance that no round delivered; by log1p and expm1, exact for small μ
            lost = np.where(rounds > 0, rounds * np.log1p(-mu), 0.0)
            ages = np.where(mu > 0, -np.expm1(lost) / mu + initial * np.exp(lost), rounds + initial)
    return np.asarray(ages - 1.0 if literal else ages)


def rotation_age(means: ArrayLike, *, by_phase: bool = False) -> Array:
    """Return the long-run mean age of clients that take turns on M channels.

    `E[a | φ] = Σ_{τ=0}^{M-1} ∏_{k<τ} (1 - μ_{φ-k}) / (1 - ∏_k (1 - μ_k))` for the client that is
    now on the channel of rank φ. The mean over φ is the mean over clients, and in the long run
    that of every client. It is infinite where all means are 0.

    **Deviations.** None: the paper has no such formula, though the clients of its Lemma 3 take
    turns (erratum E6).

    Parameters
    ----------
    means : array of float in [0, 1], shape (..., M)
        Means in the order in which a client meets them; with the matching ``rotate`` best first.
    by_phase : bool, default False
        Whether to return `E[a | φ]`, shape (..., M), instead of its mean over φ, shape (...).

    Examples
    --------
    >>> round(2 * float(rotation_age([0.9, 0.5])), 4)  # sum of two clients' ages
    2.7368
    >>> rotation_age([0.9, 0.5], by_phase=True).round(4).tolist()
    [1.1579, 1.5789]
    """
    mu = probabilities("means", means)
    if mu.ndim == 0 or mu.shape[-1] == 0:
        raise ParameterError(f"means must have the shape (..., M), M >= 1, got {mu.shape}")
    lost = np.ones_like(mu)  # the chance that none of the last τ rounds delivered
    total = np.zeros_like(mu)
    for turn in range(mu.shape[-1]):
        total += lost
        lost = lost * (1.0 - np.roll(mu, turn, axis=-1))
    with np.errstate(divide="ignore"):
        ages = total / (1.0 - lost)
    return ages if by_phase else np.asarray(ages.mean(axis=-1))


def mean_age_of_share(
    n_clients: ArrayLike,
    served: ArrayLike,
    service: Literal["random", "oldest"] = "random",
    variant: Variant = "corrected",
) -> Array:
    """Return the mean age over clients if the same number gets through in every round (Lemma 1).

    It is `M/|S|` under random service: all sets of |S| clients are equally likely, independently of
    the past. If the oldest are always served, ages are `⌊j/|S|⌋ + 1` for j = 0 … M-1.

    **Deviations** (erratum E4). Equation (11) gives `M²/|S|`, the sum over clients, not their mean;
    the paper does not say that the lemma needs memoryless, uniform service.

    Parameters
    ----------
    n_clients : array of int >= 1
        M.
    served : array of int, 1 <= served <= n_clients
        |S|, the number of clients whose update gets through in each round.
    service : {"random", "oldest"}, default "random"
        Which clients are served.
    variant : {"corrected", "literal"}, default "corrected"
        The truth, or equation (11) as printed, which covers random service only.

    Examples
    --------
    >>> float(mean_age_of_share(20, 5)), float(mean_age_of_share(20, 5, "oldest"))
    (4.0, 2.5)
    >>> float(mean_age_of_share(20, 5, variant="literal"))
    80.0
    """
    clients = whole_numbers("n_clients", n_clients, at_least=1)
    share = whole_numbers("served", served, at_least=1)
    at_most("served", share, "n_clients", clients)
    literal = is_literal(variant)
    if service == "random":
        mean = clients / share
        return np.asarray(clients * mean if literal else mean)
    if service != "oldest":
        raise ParameterError(f"service must be 'random' or 'oldest', got {service!r}")
    if literal:
        raise ParameterError("variant='literal' needs service='random', got 'oldest'")
    full, rest = np.divmod(clients, share)  # full groups of equal age, and the oldest rest
    total = share * full * (full + 1) / 2 + rest * (full + 1)
    return np.asarray(total / clients)


def _start(start: float, literal: bool) -> float:
    value = numbers("start", start, "a finite number >= 1")
    if value.ndim > 0 or not 1 <= value < np.inf:
        raise ParameterError(f"start must be a finite number >= 1, got {start!r}")
    if literal and value != 1:
        raise ParameterError(f"start must be 1 with variant='literal', got {start!r}")
    return float(value)
