"""From which distribution success rates are drawn: a mixture of Beta priors, learnt by `bayes`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from freshband._jit import kernel
from freshband.states import FIXED, declare

# Anything; mostly 0 or 1; high; low; very high; very low: how many successes and losses each
# counts for.
_BETAS = ((1.0, 1.0), (0.3, 0.3), (8.0, 2.0), (2.0, 8.0), (30.0, 3.0), (3.0, 30.0))
_SURPRISE = 0.03  # the probability that a rate is drawn from none of them, but from [0, 1] evenly


class Priors(NamedTuple):
    """P distributions and the belief in each."""

    betas: NDArray[np.float64]  # (P, 2) successes that a prior counts for, and outcomes
    belief: NDArray[np.float64]  # (P,)
    pooled: NDArray[np.float64]  # (2,) the Beta distribution with the moments of the mixture


declare(Priors, betas=FIXED)


def start_priors() -> Priors:
    """Return priors that are believed equally."""
    betas = np.array([(wins, wins + losses) for wins, losses in _BETAS])
    priors = Priors(betas, np.full(len(betas), 1.0 / len(betas)), np.zeros(2))
    pool(priors)
    return priors


@kernel
def pool(priors: Any) -> None:
    """Write the Beta distribution that has the first two moments of the mixture.

    A small share of it is always the uniform distribution: however alike all channels were, the
    next may be like none of them.
    """
    first, second = 0.0, 0.0
    for p in range(len(priors.belief)):
        wins, total = priors.betas[p, 0], priors.betas[p, 1]
        first += priors.belief[p] * wins / total
        second += priors.belief[p] * wins / total * (wins + 1.0) / (total + 1.0)
    first = (1.0 - _SURPRISE) * first + _SURPRISE / 2.0
    second = (1.0 - _SURPRISE) * second + _SURPRISE / 3.0
    strength = (first - second) / (second - first * first)
    priors.pooled[0] = first * strength
    priors.pooled[1] = strength


@kernel
def judge(priors: Any, wins: float, tries: float, outcome: int) -> None:
    """Weigh the priors by how they predict an outcome from those before it in its segment."""
    for p in range(len(priors.belief)):
        rate = (priors.betas[p, 0] + wins) / (priors.betas[p, 1] + tries)
        priors.belief[p] *= 2.0 * rate if outcome == 1 else 2.0 - 2.0 * rate


@kernel
def normalise(priors: Any, forget: float) -> None:
    """Let the beliefs sum to 1; a share of them is spread evenly."""
    belief = priors.belief
    total = 0.0
    for p in range(len(belief)):
        total += belief[p]
    for p in range(len(belief)):
        belief[p] = (1.0 - forget) * belief[p] / total + forget / len(belief)
