"""All bounds on AoI regret for one setting, literal and corrected, in one list."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from freshband.errors import ParameterError
from freshband.theory._inputs import Variant, probabilities
from freshband.theory.bound import Bound
from freshband.theory.cost import any_policy_regret
from freshband.theory.exp3 import m_exp3_bound
from freshband.theory.lower import (
    adversarial_lower_bound,
    piecewise_lower_bound,
    segments_lower_bound,
)
from freshband.theory.restarts import glr_cucb_bound, smallest_gap


class Air(NamedTuple):
    """The constants of a channel environment that upper bounds depend on."""

    worst: float  # μ_min, the least mean of any channel in any segment
    best: float  # μ*_min, the least mean among the M best channels of any segment
    best_mean: float  # ν*, the least mean over the M best channels of any segment
    gap: float  # Δ_min, infinite if no set of M channels is worse than another


class BoundEntry(NamedTuple):
    """A bound in the list."""

    result: str  # which lemma or theorem
    variant: Variant
    bound: Bound
    about: str  # the policy, and the air


def describe_air(means: ArrayLike, n_clients: int) -> Air:
    """Return the constants of an air from its means in all segments or rounds, shape (..., N).

    Examples
    --------
    >>> describe_air([[0.9, 0.5, 0.2], [0.4, 0.3, 0.8]], 2)
    Air(worst=0.2, best=0.4, best_mean=0.6, gap=0.1)
    """
    mu = probabilities("means", means)
    gap = float(np.min(smallest_gap(mu, n_clients)))
    top = np.sort(mu, axis=-1)[..., -n_clients:]
    best_mean = float(top.mean(axis=-1).min())
    return Air(float(mu.min()), float(top.min()), round(best_mean, 12), round(gap, 12))


def list_bounds(
    n_clients: int, n_channels: int, rounds: ArrayLike, n_segments: int, air: Air
) -> list[BoundEntry]:
    """Return all bounds on the AoI regret after ``rounds`` rounds; an array gives curves.

    Parameters
    ----------
    n_clients, n_channels, rounds, n_segments : shared, see freshband.theory
    air : Air
        From `describe_air`; ``worst`` must be above 0.

    Examples
    --------
    >>> air = Air(worst=0.1, best=0.4, best_mean=0.6, gap=0.1)
    >>> for entry in list_bounds(2, 5, 20_000, 6, air)[:2]:
    ...     print(entry.result, entry.variant, round(float(entry.bound.value), 2))
    Theorem 2 literal 42.59
    Theorem 2 corrected 42.59
    """
    if air.worst <= 0:
        raise ParameterError(f"air.worst must be above 0, got {air.worst}")
    problem = (n_clients, n_channels, rounds)
    segments = np.minimum(n_segments, np.asarray(rounds))
    worst, best, best_mean, gap = air
    exp3 = m_exp3_bound(*problem, worst=worst, best=best_mean)
    exp3 = Bound(exp3.value, "upper", {"stationary air": np.asarray(n_segments == 1)})
    if np.isfinite(gap):
        glr_cucb = glr_cucb_bound(*problem, segments, worst=worst, best=best, gap=gap)
    else:  # every set is best
        glr_cucb = glr_cucb_bound(*problem, segments, worst=worst, best=best, wrong=0.0)
    anything = Bound(any_policy_regret(n_clients, rounds, worst, 1.0), "upper", {})
    both: tuple[Variant, ...] = ("literal", "corrected")
    seldom = "policies that seldom try M of the channels, on some air with two breakpoints"
    theorem_2 = "Theorem 2", adversarial_lower_bound, "every policy, on some stationary air"
    theorem_4 = "Theorem 4", piecewise_lower_bound, seldom
    return [
        *(
            BoundEntry(result, variant, bound(*problem, variant), about)
            for result, bound, about in (theorem_2, theorem_4)
            for variant in both
        ),
        BoundEntry(
            "in place of Theorem 4",
            "corrected",
            segments_lower_bound(*problem, segments),
            "every policy, on some air with that many segments",
        ),
        BoundEntry(
            "Theorem 3",
            "literal",
            m_exp3_bound(*problem, "literal", best=best_mean),
            "M-Exp3, on any air (false, see chapter M-Exp3)",
        ),
        BoundEntry(
            "Theorem 3", "corrected", exp3, "tuned M-Exp3, if it and the oracle match at random"
        ),
        BoundEntry(
            "Theorem 5",
            "literal",
            glr_cucb_bound(*problem, segments, "literal"),
            "GLR-CUCB, an order of growth with constant 1",
        ),
        BoundEntry(
            "Theorem 5",
            "corrected",
            glr_cucb,
            "GLR-CUCB against an oracle that takes turns; constant 1",
        ),
        BoundEntry(
            "any policy", "corrected", anything, "no policy can do worse on air with such means"
        ),
    ]
