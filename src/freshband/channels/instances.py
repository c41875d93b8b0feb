"""The paper's instances: those of its lower bounds, and those of its figures."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, final

import numpy as np
from pydantic import model_validator

from freshband.channels._fields import AtMost, Band, Count, Low, MeansModel, Natural, Probability
from freshband.channels.base import _Floats, _Rng, register
from freshband.channels.piecewise import Piecewise, _segment_lengths
from freshband.channels.streams import held
from freshband.channels.switching import Switching
from freshband.errors import ParameterError
from freshband.parameters import whole_number


@final
@register("hard-stationary")
class HardStationary(MeansModel):
    """The instance behind Theorem 2: M good channels hidden among N nearly as good ones.

    A uniformly random set of M channels has mean `½ + ε`, the others `½`, with
    `ε = (N−M) / (4M √(NT))`. For every policy there is such a set on which its
    AoI regret is `Ω((N−M)²/N² √(NT))`.

    Parameters
    ----------
    n_channels : int >= 1, default 5
        Number of channels N.
    n_clients : int in [1, n_channels], default 2
        Number of clients M. There must be enough rounds that `ε ≤ 1/4`.

    Examples
    --------
    >>> from freshband.channels import open_air
    >>> sorted(open_air("hard-stationary", rounds=2000, seed=0).block(1).means[0].tolist())
    [0.5, 0.5, 0.5, 0.50375, 0.50375]
    """

    n_clients: Annotated[Count, AtMost("n_channels")] = 2

    def _pieces(self, rounds: int, structure: _Rng) -> Iterable[_Floats]:
        channels, clients = self.n_channels, self.n_clients
        enough = math.ceil((channels - clients) ** 2 / (clients**2 * channels))
        whole_number("rounds", rounds, at_least=enough)
        gap = (channels - clients) / (4 * clients * math.sqrt(channels * rounds))
        means = np.full(channels, 0.5)
        means[structure.choice(channels, clients, replace=False)] += gap
        return [np.broadcast_to(means, (rounds, channels))]


@final
@register("hard-piecewise")
class HardPiecewise(MeansModel):
    """The instance behind Theorem 4: in one interval, other channels are best.

    The run is cut into K = N equal intervals. The first M channels have mean `½ + ε` and the
    others `½`, with `ε = √(N/(MT))`, except in one uniformly random interval, in which the last M
    channels are the good ones.

    Parameters
    ----------
    n_channels : int >= 2 n_clients, default 5
        Number of channels N, and of intervals K.
    n_clients : int >= 1, default 2
        Number of clients M. There must be enough rounds that `ε < 1/2`, and at least N.

    Notes
    -----
    **Deviations.** Theorem 4 is stated for any policy; its proof assumes a policy that plays
    the last M channels no more than `MT/K` times where all means are `½`.

    Examples
    --------
    >>> from freshband.channels import open_air
    >>> air = open_air("hard-piecewise", rounds=1000, seed=0)
    >>> air.block(1000).means[0].tolist(), air.breakpoints
    ([0.5, 0.5, 0.5, 0.55, 0.55], array([201]))
    """

    n_clients: Count = 2

    @model_validator(mode="after")
    def _agree(self) -> HardPiecewise:
        if self.n_channels < 2 * self.n_clients:
            raise ParameterError(
                f"n_channels must be at least 2 n_clients = {2 * self.n_clients}, "
                f"got {self.n_channels}"
            )
        return self

    def _pieces(self, rounds: int, structure: _Rng) -> Iterable[_Floats]:
        channels, clients = self.n_channels, self.n_clients
        enough = max(channels, 4 * channels // clients + 1)
        whole_number("rounds", rounds, at_least=enough)
        means = np.full((channels, channels), 0.5)
        means[:, :clients] += math.sqrt(channels / (clients * rounds))
        special = int(structure.integers(channels))
        means[special] = means[special, ::-1].copy()
        return held(means, _segment_lengths(rounds, channels, 1, None))


class _PiecewiseFigure(Band):
    """Equally spaced breakpoints, at each of which all means are drawn again."""

    n_breakpoints: Natural = 5

    def _pieces(self, rounds: int, structure: _Rng) -> Iterable[_Floats]:
        return Piecewise(**dict(self))._pieces(rounds, structure)


@final
@register("fig2")
class Fig2(_PiecewiseFigure):
    """The channels of Fig. 2: five of them, with five equally spaced breakpoints.

    All means are drawn again from U[mean_low, mean_high] at every breakpoint. The paper runs it
    for T = 20,000 rounds with M = 2 clients.

    Parameters
    ----------
    n_channels : int >= 1, default 5
        Number of channels N; Fig. 2 also varies it.
    mean_low, mean_high : float, 0 <= mean_low <= mean_high <= 1, default 0.1 and 0.9
        The means are drawn from U[mean_low, mean_high].
    n_breakpoints : int >= 0, default 5
        Number of breakpoints; Fig. 2 also varies it, from 0 to 12.

    Notes
    -----
    **Deviations.** The paper states neither the means nor the places of the breakpoints.

    Examples
    --------
    >>> from freshband.channels import open_air
    >>> air = open_air("fig2", rounds=20_000, seed=0)
    >>> len(air.block(20_000).states), air.breakpoints
    (20000, array([ 3334,  6667, 10001, 13334, 16667]))
    """


@final
@register("fig3-piecewise")
class Fig3Piecewise(_PiecewiseFigure):
    """The piecewise-stationary channels of Figs. 3 and 4: thirty of them, two breakpoints.

    The breakpoints are equally spaced, and all means are drawn again from U[mean_low, mean_high] at
    each. The paper runs it for about T = 250 rounds with M = 20 clients.

    Parameters
    ----------
    n_channels : int >= 1, default 30
        Number of channels N.
    mean_low, mean_high : float, 0 <= mean_low <= mean_high <= 1, default 0 and 1
        The means are drawn from U[mean_low, mean_high].
    n_breakpoints : int >= 0, default 2
        Number of breakpoints.

    Notes
    -----
    **Deviations.** The paper states neither means nor breakpoints. With U[0, 1] and two
    breakpoints the cumulative age variance at round 250 is about what Fig. 4 reports, both for
    random scheduling and for the paper's.

    Examples
    --------
    >>> from freshband.channels import open_air
    >>> air = open_air("fig3-piecewise", rounds=250, seed=0)
    >>> air.block(250).states.shape, air.breakpoints
    ((250, 30), array([ 84, 167]))
    """

    n_channels: Count = 30
    mean_low: Low = 0.0
    mean_high: Probability = 1.0
    n_breakpoints: Natural = 2


@final
@register("fig3-extreme")
class Fig3Extreme(Band):
    """The "extremely non-stationary" channels of Figs. 3 and 4: six that keep switching.

    Every channel draws a new mean from U[mean_low, mean_high] in every round with probability
    ``hazard``, independently. The paper runs it for about T = 250 rounds with M = 4 clients.

    Parameters
    ----------
    n_channels : int >= 1, default 6
        Number of channels N.
    mean_low, mean_high : float, 0 <= mean_low <= mean_high <= 1, default 0 and 1
        The means are drawn from U[mean_low, mean_high].
    hazard : float in [0, 1], default 0.04
        Probability per round that a channel switches.

    Notes
    -----
    **Deviations.** The paper does not say how these channels are made. At 0.04 a mean lasts 25
    rounds, fewer than the 30 samples the GLR test needs to see a fall from .8 to .3, and some
    channel changes every four to five rounds: no detector can follow, and no set of channels stays
    best. The cumulative age variance of random scheduling at round 250 is then 480, with a
    standard deviation of 190 over runs; Fig. 4 shows 400 and 800.

    Examples
    --------
    >>> from freshband.channels import open_air
    >>> air = open_air("fig3-extreme", rounds=250, seed=0)
    >>> air.block(250).states.shape, len(air.breakpoints)
    ((250, 6), 61)
    """

    n_channels: Count = 6
    mean_low: Low = 0.0
    mean_high: Probability = 1.0
    hazard: Probability = 0.04

    def _pieces(self, rounds: int, structure: _Rng) -> Iterable[_Floats]:
        return Switching(**dict(self), per_channel=True)._pieces(rounds, structure)
