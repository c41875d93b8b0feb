"""Channels whose success rates change a little in every round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, final

import numpy as np
from pydantic import Field, model_validator

from freshband.channels._fields import Band, Count, forbid
from freshband.channels.base import _Floats, _Rng, register
from freshband.channels.streams import _FRAME


@final
@register("drifting")
class Drifting(Band):
    """Success rates that drift: smoothly up and down, or as a random walk.

    Smooth: `μ_k(t) = low + (high − low) (1 + sin(2π (t/p_k + φ_k))) / 2`, with a period `p_k` drawn
    from U[period/2, 2 period] and a phase `φ_k` from U[0, 1]. Walk: every round adds a normal step
    of standard deviation ``step`` to `μ_k`, which is reflected at the ends of the band. No round is
    a breakpoint to look for: every one is.

    Parameters
    ----------
    n_channels : int >= 1, default 5
        Number of channels N.
    mean_low, mean_high : float, 0 <= mean_low <= mean_high <= 1, default 0.1 and 0.9
        The band in which success rates drift; the walk begins at a uniform place in it.
    pattern : {"smooth", "walk"}, default "smooth"
        How rates drift.
    period : int >= 1, default 2000
        The typical number of rounds until a smooth drift comes back; not with ``walk``.
    step : float in [0, 1], default 0.01
        The standard deviation of a step of the walk; not with ``smooth``.

    Notes
    -----
    **Deviations.** Not in the paper, whose channels jump.

    Examples
    --------
    >>> from freshband.channels import Drifting, open_air
    >>> means = open_air(Drifting(n_channels=1, period=100), rounds=200, seed=0).block(200).means
    >>> bool(abs(means[1:] - means[:-1]).max() < 0.06)
    True

    References
    ----------
    O. Besbes, Y. Gur, A. Zeevi, "Stochastic multi-armed-bandit problem with non-stationary
    rewards", NeurIPS 2014: drift with a limited total variation.
    """

    pattern: Literal["smooth", "walk"] = "smooth"
    period: Count = 2000
    step: Annotated[float, Field(ge=0, le=1)] = 0.01

    @model_validator(mode="after")
    def _agree(self) -> Drifting:
        forbid(self, f"pattern={self.pattern!r}", "step" if self.pattern == "smooth" else "period")
        return self

    def _pieces(self, rounds: int, structure: _Rng) -> Iterator[_Floats]:
        return self._smooth(structure) if self.pattern == "smooth" else self._walk(structure)

    def _smooth(self, structure: _Rng) -> Iterator[_Floats]:
        period = structure.uniform(self.period / 2, 2 * self.period, self.n_channels)
        phase = structure.random(self.n_channels)
        first, span = 0, self.mean_high - self.mean_low
        while True:
            turns = (first + np.arange(_FRAME))[:, None] / period + phase
            yield self.mean_low + span * (1 + np.sin(2 * np.pi * turns)) / 2
            first += _FRAME

    def _walk(self, structure: _Rng) -> Iterator[_Floats]:
        span = self.mean_high - self.mean_low
        place = structure.uniform(0, span, self.n_channels)  # unfolded: reflected only when shown
        while True:
            steps = self.step * structure.standard_normal((_FRAME, self.n_channels))
            walked = place + np.cumsum(steps, axis=0)
            place = walked[-1]
            folded = np.abs((walked + span) % (2 * span) - span) if span > 0 else 0 * walked
            yield self.mean_low + folded
