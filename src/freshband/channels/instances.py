"""The paper's own instances: those its lower bounds are proved on, and those of its figures."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, final

import numpy as np
from pydantic import Field, model_validator

from freshband.channels.base import Stream, register
from freshband.channels.fields import Band, Count, Probability
from freshband.channels.piecewise import Piecewise, segment_lengths
from freshband.channels.stationary import Stationary
from freshband.channels.streams import MeansStream, held
from freshband.channels.switching import Switching
from freshband.errors import ParameterError
from freshband.parameters import Parameters, whole_number

__all__ = [
    "Fig2",
    "Fig3Extreme",
    "Fig3Piecewise",
    "HardPiecewise",
    "HardStationary",
]

Rng = np.random.Generator


@final
@register("hard-stationary")
class HardStationary(Parameters):
    """The instance behind Theorem 2: M good channels hidden among N nearly as good ones.

    A uniformly random set of M channels has mean `½ + ε`, the others `½`, with
    `ε = (N−M) / (4M √(NT))`. No policy has an AoI regret below `Ω((N−M)²/N² √(NT))` on all
    such sets.

    Parameters
    ----------
    n_channels : int >= 1, default 5
        Number of channels N.
    n_clients : int in [1, n_channels], default 2
        Number of clients M. Rounds must be so many that `ε ≤ 1/4`.

    Examples
    --------
    >>> from freshband.channels import open_air
    >>> sorted(open_air("hard-stationary", rounds=2000, seed=0).block(1).means[0].tolist())
    [0.5, 0.5, 0.5, 0.50375, 0.50375]
    """

    has_means: ClassVar[bool] = True

    n_channels: Count = 5
    n_clients: Count = 2

    @model_validator(mode="after")
    def _agree(self) -> HardStationary:
        if self.n_clients > self.n_channels:
            raise ParameterError(
                f"n_clients must be at most n_channels = {self.n_channels}, got {self.n_clients}"
            )
        return self

    def start(self, rounds: int, structure: Rng, states: Rng) -> Stream:
        """Open a stream; see `ChannelModel.start`."""
        channels, clients = self.n_channels, self.n_clients
        enough = math.ceil((channels - clients) ** 2 / (clients**2 * channels))
        rounds = whole_number("rounds", rounds, at_least=max(enough, 1))
        gap = (channels - clients) / (4 * clients * math.sqrt(channels * rounds))
        means = np.full(channels, 0.5)
        means[structure.choice(channels, clients, replace=False)] += gap
        return Stationary(means=means).start(rounds, structure, states)


@final
@register("hard-piecewise")
class HardPiecewise(Parameters):
    """The instance behind Theorem 4: the best channels change places once, for a while.

    The run is cut into K = N equal intervals. The first M channels have mean `½ + ε` and the
    others `½`, with `ε = √(N/(MT))`, except in one uniformly random interval, in which the last M
    channels are the good ones.

    Parameters
    ----------
    n_channels : int >= 2 n_clients, default 5
        Number of channels N, and of intervals K.
    n_clients : int >= 1, default 2
        Number of clients M. Rounds must be so many that `ε < 1/2`, and at least N.

    Notes
    -----
    **Deviations.** Theorem 4 reads as if it held for any policy; its proof assumes one that plays
    the last M channels no more than `MT/K` times where all means are `½`.

    Examples
    --------
    >>> from freshband.channels import open_air
    >>> air = open_air("hard-piecewise", rounds=1000, seed=0)
    >>> air.block(1000).means[0].tolist(), air.breakpoints
    ([0.5, 0.5, 0.5, 0.55, 0.55], array([201]))
    """

    has_means: ClassVar[bool] = True

    n_channels: Count = 5
    n_clients: Count = 2

    @model_validator(mode="after")
    def _agree(self) -> HardPiecewise:
        if self.n_channels < 2 * self.n_clients:
            raise ParameterError(
                f"n_channels must be at least 2 n_clients = {2 * self.n_clients}, "
                f"got {self.n_channels}"
            )
        return self

    def start(self, rounds: int, structure: Rng, states: Rng) -> Stream:
        """Open a stream; see `ChannelModel.start`."""
        channels, clients = self.n_channels, self.n_clients
        enough = max(channels, 4 * channels // clients + 1)
        rounds = whole_number("rounds", rounds, at_least=enough)
        means = np.full((channels, channels), 0.5)
        means[:, :clients] += math.sqrt(channels / (clients * rounds))
        special = int(structure.integers(channels))
        means[special] = means[special, ::-1].copy()
        lengths = segment_lengths(rounds, channels, 1, None)
        return MeansStream(rounds, channels, held(means, lengths), states)


@final
@register("fig2")
class Fig2(Band):
    """The air of Fig. 2: five channels, five equally spaced breakpoints.

    All means are drawn anew from U[mean_low, mean_high] at every breakpoint. The paper runs it
    for T = 20,000 rounds with M = 2 clients.

    Parameters
    ----------
    n_channels : int >= 1, default 5
        Number of channels N; Fig. 2 also varies it.
    mean_low, mean_high : float, 0 <= mean_low <= mean_high <= 1, default 0.1 and 0.9
        Where the means are drawn from.
    n_breakpoints : int >= 0, default 5
        Number of breakpoints; Fig. 2 also varies it, from 0 to 12.

    Notes
    -----
    **Deviations.** The paper gives neither means nor places of the breakpoints.

    Examples
    --------
    >>> from freshband.channels import open_air
    >>> air = open_air("fig2", rounds=20_000, seed=0)
    >>> len(air.block(20_000).states), air.breakpoints
    (20000, array([ 3334,  6667, 10001, 13334, 16667]))
    """

    has_means: ClassVar[bool] = True

    n_breakpoints: Annotated[int, Field(ge=0)] = 5

    def start(self, rounds: int, structure: Rng, states: Rng) -> Stream:
        """Open a stream; see `ChannelModel.start`."""
        return Piecewise(**dict(self)).start(rounds, structure, states)


@final
@register("fig3-piecewise")
class Fig3Piecewise(Band):
    """The piecewise air of Figs. 3 and 4: thirty channels, two equally spaced breakpoints.

    All means are drawn anew from U[mean_low, mean_high] at every breakpoint. The paper runs it
    for about T = 250 rounds with M = 20 clients.

    Parameters
    ----------
    n_channels : int >= 1, default 30
        Number of channels N.
    mean_low, mean_high : float, 0 <= mean_low <= mean_high <= 1, default 0 and 1
        Where the means are drawn from.
    n_breakpoints : int >= 0, default 2
        Number of breakpoints.

    Notes
    -----
    **Deviations.** The paper gives neither means nor breakpoints. With U[0, 1] and two of them,
    the cumulative age variance at round 250 is about what Fig. 4 reports, for random scheduling
    as well as for the paper's.

    Examples
    --------
    >>> from freshband.channels import open_air
    >>> air = open_air("fig3-piecewise", rounds=250, seed=0)
    >>> air.block(250).states.shape, air.breakpoints
    ((250, 30), array([ 84, 167]))
    """

    has_means: ClassVar[bool] = True

    n_channels: Count = 30
    mean_low: Probability = 0.0
    mean_high: Probability = 1.0
    n_breakpoints: Annotated[int, Field(ge=0)] = 2

    def start(self, rounds: int, structure: Rng, states: Rng) -> Stream:
        """Open a stream; see `ChannelModel.start`."""
        return Piecewise(**dict(self)).start(rounds, structure, states)


@final
@register("fig3-extreme")
class Fig3Extreme(Band):
    """The "extremely non-stationary" air of Figs. 3 and 4: six channels that keep switching.

    Every channel draws a new mean from U[mean_low, mean_high] in every round with probability
    ``hazard``, on its own. The paper runs it for about T = 250 rounds with M = 4 clients.

    Parameters
    ----------
    n_channels : int >= 1, default 6
        Number of channels N.
    mean_low, mean_high : float, 0 <= mean_low <= mean_high <= 1, default 0 and 1
        Where the means are drawn from.
    hazard : float in [0, 1], default 0.04
        Probability that a channel switches in a round.

    Notes
    -----
    **Deviations.** The paper does not say how this air is made. At 0.04 a mean lasts 25 rounds,
    fewer than the 30 samples the GLR test needs to see a fall from .8 to .3, and some channel
    changes every four to five rounds: no detector can follow, and no set of channels stays best.
    Random scheduling then has a cumulative age variance of 480 at round 250, 190 from one run to
    the next; Fig. 4 shows 400 and 800.

    Examples
    --------
    >>> from freshband.channels import open_air
    >>> air = open_air("fig3-extreme", rounds=250, seed=0)
    >>> air.block(250).states.shape, len(air.breakpoints)
    ((250, 6), 61)
    """

    has_means: ClassVar[bool] = True

    n_channels: Count = 6
    mean_low: Probability = 0.0
    mean_high: Probability = 1.0
    hazard: Probability = 0.04

    def start(self, rounds: int, structure: Rng, states: Rng) -> Stream:
        """Open a stream; see `ChannelModel.start`."""
        return Switching(**dict(self), per_channel=True).start(rounds, structure, states)
