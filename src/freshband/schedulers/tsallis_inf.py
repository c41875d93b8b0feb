"""Tsallis-INF for sets of M: follow the regularised leader, in one rule for chance and malice."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from freshband._jit import cold, kernel
from freshband.parameters import Parameters
from freshband.schedulers._marginals import MarginalsState, credit, spread, start_marginals
from freshband.schedulers.base import register
from freshband.states import FIXED, between, declare

_EXACT = 1e-11  # the error allowed in a marginal, and in their sum
_MOST = 1.0 - 1e-12  # a marginal that counts as 1


class _TsallisState(NamedTuple):
    """Estimated losses of N channels."""

    loss: NDArray[np.float64]  # (N,) estimated losses so far
    scaled: NDArray[np.float64]  # (N,) η_t times the losses
    level: NDArray[np.float64]  # (1,) ν of the last round, from which the next is found
    rate: NDArray[np.float64]  # (1,) η_1


declare(_TsallisState, loss=between(0), level=between(-np.inf), rate=FIXED)


@kernel
def _slope(x: float, gamma: float) -> float:
    """f(x) = 1 / (2 sqrt(x)) + γ ln(1-x): falls from +∞ at 0 to -∞ at 1."""
    return 0.5 / math.sqrt(x) + gamma * math.log1p(-x)


@cold
def _invert_slope(y: float, gamma: float) -> float:
    """Solve f(x) = y by Newton's method, between bounds that close in."""
    if y <= _slope(_MOST, gamma):
        return _MOST
    low, high = 0.0, _MOST
    x = 0.25 / (y * y) if y > 0.75 else 1.0 - math.exp(min((y - 0.75) / gamma, -0.5))
    x = min(x, _MOST)
    for _ in range(60):
        excess = _slope(x, gamma) - y
        if excess > 0.0:
            low = x
        else:
            high = x
        step = excess / (0.25 / (x * math.sqrt(x)) + gamma / (1.0 - x))
        if abs(step) <= _EXACT * min(x, 1.0 - x):
            break
        x += step
        if not low < x < high:
            x = 0.5 * (low + high)
    return x


@spread.register(_TsallisState)
def _spread(scheme: _TsallisState, t: int, offered: Any, size: int, marginals: Any) -> None:
    eta = scheme.rate[0] / math.sqrt(t)
    free = 0
    low, high = math.inf, -math.inf
    for channel in range(len(offered)):
        if offered[channel] == 1:
            scheme.scaled[channel] = eta * scheme.loss[channel]
            low = min(low, scheme.scaled[channel])
            high = max(high, scheme.scaled[channel])
            free += 1
    gamma = 1.0
    if 2 * size > free:
        gamma = min(1.0, 1.0 / math.sqrt(math.log(free / (free - size))))
    even = _slope(size / free, gamma)
    low, high = low - even, high - even  # of ν: all marginals at most, and at least, size / free
    level = min(max(scheme.level[0], low), high)
    for _ in range(100):
        total, growth = 0.0, 0.0
        for channel in range(len(offered)):
            if offered[channel] == 1:
                x = _invert_slope(scheme.scaled[channel] - level, gamma)
                marginals[channel] = x
                total += x
                growth += 1.0 / (0.25 / (x * math.sqrt(x)) + gamma / (1.0 - x))
        if abs(total - size) <= _EXACT * size or high - low <= _EXACT * max(1.0, abs(level)):
            break
        if total < size:
            low = level
        else:
            high = level
        level += (size - total) / growth
        if not low < level < high:
            level = 0.5 * (low + high)
    scheme.level[0] = level


@credit.register(_TsallisState)
def _credit(scheme: _TsallisState, t: int, channel: int, outcome: int, chance: float) -> None:
    scheme.loss[channel] += (1.0 - outcome) / chance


@register("tsallis-inf")
@final
class TsallisInf(Parameters):
    """Follow the regularised leader over sets of M channels (Tsallis-INF, hybrid regulariser).

    The probabilities `p` of round t minimise `sum of p_k L_k + Ψ(p) / η_t` over all p in [0, 1]^N
    with sum M, where `L_k` is the sum of losses divided by the probability of their channel,
    `Ψ(p) = sum of -sqrt(p_k) + γ (1-p_k) ln(1-p_k)`, `η_t = η / sqrt(t)`, and γ = 1 if M <= N/2,
    else `min(1, 1 / sqrt(ln(N / (N-M))))`. A set with these probabilities is drawn by dependent
    rounding.

    Parameters
    ----------
    eta : float > 0, default 2.0
        The learning rate η. The authors' `1 / sqrt(t)` is for losses of -1 and 1, which are twice
        as far apart as 0 and 1: with these it is η = 2.
    discount : float in (0, 1) or None, default 0.99
        The factor per round by which the historical means fade that rank the chosen channels.

    Notes
    -----
    Assumes nothing, and competes with the best fixed set: its regret grows with `ln T` where the
    channels are stationary, and with `sqrt(T)` whatever they do. It does not follow a best set that
    changes.

    The γ for M > N/2 is the paper's as we read it; the authors' program has `1 / sqrt(ln M)`.

    **Deviations.** (1) A loss is 1 for a lost update and 0 for a delivered one. The authors' are -1
    and 1, and they add 1 before they divide by the probability: the same but for a factor of 2,
    which is in η. (2) A round in which `+aa` acted was not
    drawn: its outcomes teach the means only. (3) An outcome that is more than 62 rounds late
    teaches the means only, because the probability of its draw is forgotten.

    Examples
    --------
    >>> import freshband
    >>> result = freshband.simulate(
    ...     "stationary", ["exp3-m", "tsallis-inf"], clients=2, rounds=4000, runs=3, progress=False
    ... )
    >>> weights, leader = result.regret.mean("run").values
    >>> bool(leader < weights)
    True

    References
    ----------
    Zimmert, Luo, Wei, "Beating stochastic and adversarial semi-bandits optimally and
    simultaneously", ICML 2019; program: github.com/diku-dk/CombSemiBandits.
    """

    eta: float = Field(default=2.0, gt=0)
    discount: float | None = Field(default=0.99, gt=0, lt=1)

    def start(
        self, n_clients: int, n_channels: int, rng: np.random.Generator, horizon: int | None
    ) -> MarginalsState:
        """Allocate the state, without losses."""
        scheme = _TsallisState(
            loss=np.zeros(n_channels),
            scaled=np.zeros(n_channels),
            level=np.zeros(1),
            rate=np.array([self.eta]),
        )
        return start_marginals(scheme, n_clients, n_channels, self.discount)
