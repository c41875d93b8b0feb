"""Named instances: problems from the literature and settings of the paper's figures.

Each is a channel model like any other, with few parameters or none.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, final

import numpy as np
import numpy.typing as npt
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
    "Besson1",
    "Besson2",
    "Besson4",
    "BessonRandom",
    "Fig2",
    "Fig3Extreme",
    "Fig3Piecewise",
    "HardPiecewise",
    "HardStationary",
]

Rng = np.random.Generator
Half = Annotated[float, Field(ge=0, le=0.5)]

_BESSON_1 = ((0.3, 0.5, 0.9), (0.3, 0.2, 0.9), (0.3, 0.2, 0.1), (0.7, 0.2, 0.1), (0.7, 0.5, 0.1))
_BESSON_2 = ((0.4, 0.5, 0.9), (0.5, 0.4, 0.7), (0.6, 0.3, 0.5), (0.7, 0.2, 0.3), (0.8, 0.1, 0.1))
_BESSON_4 = ((0.1, 0.5, 0.9), (0.3, 0.4, 0.1), (0.5, 0.3, 0.2), (0.7, 0.4, 0.3), (0.1, 0.5, 0.2))


@final
@register("besson-1")
class Besson1(Parameters):
    """Problem 1 of Besson et al.: five equal segments, one channel changes at a time.

    Means (.3, .5, .9), (.3, .2, .9), (.3, .2, .1), (.7, .2, .1), (.7, .5, .1) [1]_. No parameters.

    Examples
    --------
    >>> from freshband.channels import open_air
    >>> air = open_air("besson-1", rounds=5000, seed=0)
    >>> len(air.block(5000).states), air.breakpoints
    (5000, array([1001, 2001, 3001, 4001]))

    References
    ----------
    .. [1] L. Besson, E. Kaufmann, O.-A. Maillard, J. Seznec, "Efficient change-point detection
       for tackling piecewise-stationary bandits", JMLR 23, 2022.
    """

    n_channels: ClassVar[int] = 3
    has_means: ClassVar[bool] = True

    def start(self, rounds: int, structure: Rng, states: Rng) -> Stream:
        """Open a stream; see `ChannelModel.start`."""
        return Piecewise(means=_BESSON_1).start(rounds, structure, states)


@final
@register("besson-2")
class Besson2(Parameters):
    """Problem 2 of Besson et al.: five equal segments, all channels change each time.

    Means (.4, .5, .9), (.5, .4, .7), (.6, .3, .5), (.7, .2, .3), (.8, .1, .1) [1]_. No parameters.

    Examples
    --------
    >>> from freshband.channels import open_air
    >>> air = open_air("besson-2", rounds=5000, seed=0)
    >>> air.block(5000).means[-1].tolist()
    [0.8, 0.1, 0.1]

    References
    ----------
    .. [1] L. Besson, E. Kaufmann, O.-A. Maillard, J. Seznec, "Efficient change-point detection
       for tackling piecewise-stationary bandits", JMLR 23, 2022.
    """

    n_channels: ClassVar[int] = 3
    has_means: ClassVar[bool] = True

    def start(self, rounds: int, structure: Rng, states: Rng) -> Stream:
        """Open a stream; see `ChannelModel.start`."""
        return Piecewise(means=_BESSON_2).start(rounds, structure, states)


@final
@register("besson-4")
class Besson4(Parameters):
    """Problem 4 of Besson et al.: a long first segment, then four short ones.

    Means (.1, .5, .9), (.3, .4, .1), (.5, .3, .2), (.7, .4, .3), (.1, .5, .2); the segments begin
    after T (0, 1/2, 5/8, 3/4, 7/8) rounds [1]_, rounded down, so T must be at least 8. No
    parameters.

    Examples
    --------
    >>> from freshband.channels import open_air
    >>> air = open_air("besson-4", rounds=8000, seed=0)
    >>> len(air.block(8000).states), air.breakpoints
    (8000, array([4001, 5001, 6001, 7001]))

    References
    ----------
    .. [1] L. Besson, "Multi-players bandit algorithms for Internet of Things networks", PhD
       thesis, CentraleSupelec, 2019, chapter 6.
    """

    n_channels: ClassVar[int] = 3
    has_means: ClassVar[bool] = True

    def start(self, rounds: int, structure: Rng, states: Rng) -> Stream:
        """Open a stream; see `ChannelModel.start`."""
        rounds = whole_number("rounds", rounds, at_least=8)
        places = [eighths * rounds // 8 + 1 for eighths in (4, 5, 6, 7)]
        return Piecewise(means=_BESSON_4, breakpoints=places).start(rounds, structure, states)


@final
@register("besson-random")
class BessonRandom(Parameters):
    r"""The random instances of Besson et al.: channels that change by a little, not all at once.

    First means from U[0, 1]. Breakpoints are uniform over all placements with segments of at
    least ``min_gap`` rounds. At each of them every channel, with probability ``p_change``, moves
    by :math:`\pm\Delta`, :math:`\Delta \sim U[\mathrm{jump\_low}, \mathrm{jump\_high}]` and the
    sign a fair coin; a move that would leave [0, 1] goes the other way [1]_.

    Parameters
    ----------
    n_channels : int >= 1, default 5
        Number of channels N.
    n_breakpoints : int >= 0, default 6
        Number of breakpoints; one at which no channel moves is none.
    p_change : float in [0, 1], default 0.5
        Probability that a channel moves at a breakpoint.
    jump_low, jump_high : float, 0 <= jump_low <= jump_high <= 0.5, default 0.05 and 0.3
        Size of a move; up to 0.5, so that one of the two ways is always open.
    min_gap : int >= 1, default 1000
        Shortest segment; (n_breakpoints + 1) min_gap must not exceed the rounds.

    Examples
    --------
    >>> from freshband.channels import open_air
    >>> air = open_air("besson-random", rounds=20_000, seed=0)
    >>> len(air.block(20_000).states), len(air.breakpoints)
    (20000, 6)

    References
    ----------
    .. [1] L. Besson, E. Kaufmann, O.-A. Maillard, J. Seznec, "Efficient change-point detection
       for tackling piecewise-stationary bandits", JMLR 23, 2022.
    """

    has_means: ClassVar[bool] = True

    n_channels: Count = 5
    n_breakpoints: Annotated[int, Field(ge=0)] = 6
    p_change: Probability = 0.5
    jump_low: Half = 0.05
    jump_high: Half = 0.3
    min_gap: Count = 1000

    @model_validator(mode="after")
    def _agree(self) -> BessonRandom:
        if self.jump_low > self.jump_high:
            raise ParameterError(
                f"jump_low must be at most jump_high = {self.jump_high}, got {self.jump_low}"
            )
        return self

    def start(self, rounds: int, structure: Rng, states: Rng) -> Stream:
        """Open a stream; see `ChannelModel.start`."""
        rounds = whole_number("rounds", rounds, at_least=1)
        lengths = segment_lengths(rounds, self.n_breakpoints + 1, self.min_gap, structure)
        means = np.empty((len(lengths), self.n_channels))
        means[0] = structure.random(self.n_channels)
        for before, after in zip(means, means[1:], strict=False):
            moves = structure.random(self.n_channels) < self.p_change
            jump = structure.uniform(self.jump_low, self.jump_high, self.n_channels)
            jump[structure.random(self.n_channels) < 0.5] *= -1
            jump[(before + jump < 0) | (before + jump > 1)] *= -1
            after[:] = np.where(moves, before + jump, before)
        return MeansStream(rounds, self.n_channels, held(means, lengths), states)


@final
@register("hard-stationary")
class HardStationary(Parameters):
    r"""The instance behind Theorem 2: M good channels hidden among N nearly as good ones.

    A uniformly random set of M channels has mean :math:`\frac12 + \varepsilon`, the others
    :math:`\frac12`, with :math:`\varepsilon = (N-M)/(4M\sqrt{NT})`. No policy can have an AoI
    regret below :math:`\Omega(\frac{(N-M)^2}{N^2}\sqrt{NT})` on all such sets.

    Parameters
    ----------
    n_channels : int >= 1, default 5
        Number of channels N.
    n_clients : int in [1, n_channels], default 2
        Number of clients M. Rounds must be so many that :math:`\varepsilon \le 1/4`.

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
    r"""The instance behind Theorem 4: the best channels change places once, for a while.

    The run is cut into K = N equal intervals. The first M channels have mean
    :math:`\frac12 + \varepsilon` and the others :math:`\frac12`, with
    :math:`\varepsilon = \sqrt{N/(MT)}`, except in one uniformly random interval, in which the last
    M channels are the good ones.

    Parameters
    ----------
    n_channels : int >= 2 n_clients, default 5
        Number of channels N, and of intervals K.
    n_clients : int >= 1, default 2
        Number of clients M. Rounds must be so many that :math:`\varepsilon < 1/2`, and at least N.

    Notes
    -----
    **Deviations.** Theorem 4 reads as if it held for any policy; its proof assumes one that plays
    the last M channels no more than :math:`MT/K` times on a stationary air.

    Examples
    --------
    >>> from freshband.channels import open_air
    >>> air = open_air("hard-piecewise", rounds=1000, seed=0)
    >>> air.block(1000).means[0].tolist(), air.breakpoints
    ([0.55, 0.55, 0.5, 0.5, 0.5], array([801]))
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

    Examples
    --------
    >>> from freshband.channels import open_air
    >>> air = open_air("fig3-extreme", rounds=250, seed=0)
    >>> air.block(250).states.shape, len(air.breakpoints)
    ((250, 6), 49)
    """

    has_means: ClassVar[bool] = True

    n_channels: Count = 6
    mean_low: Probability = 0.0
    mean_high: Probability = 1.0
    hazard: Probability = 0.04

    def start(self, rounds: int, structure: Rng, states: Rng) -> Stream:
        """Open a stream; see `ChannelModel.start`."""
        return Switching(**dict(self), per_channel=True).start(rounds, structure, states)
