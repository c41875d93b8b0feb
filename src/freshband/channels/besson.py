"""Reference problems from Besson and Kaufmann's work on piecewise-stationary bandits."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Annotated, ClassVar, final

import numpy as np
from pydantic import Field

from freshband.channels._fields import AtMost, Count, MeansModel, Natural, Probability
from freshband.channels.base import Stream, _Floats, _Rng, register
from freshband.channels.piecewise import Piecewise, _segment_lengths
from freshband.channels.streams import held
from freshband.parameters import Parameters, whole_number

_Half = Annotated[float, Field(ge=0, le=0.5)]


class _Problem(Parameters):
    """A problem without parameters: means by segment, and segment starts in eighths of T."""

    n_channels: ClassVar[int] = 3
    has_means: ClassVar[bool] = True
    _means: ClassVar[tuple[tuple[float, ...], ...]]
    _eighths: ClassVar[tuple[int, ...] | None] = None  # None: segments of equal length

    def start(self, rounds: int, structure: _Rng, states: _Rng) -> Stream:
        """Open a stream; see `ChannelModel.start`."""
        places = None
        if self._eighths is not None:
            rounds = whole_number("rounds", rounds, at_least=8)
            places = [eighths * rounds // 8 + 1 for eighths in self._eighths]
        model = Piecewise(means=self._means, breakpoints=places)
        return model.start(rounds, structure, states)


@final
@register("besson-1")
class Besson1(_Problem):
    """Problem 1 of Besson et al.: five equal segments, one channel changes at a time.

    Means (.3, .5, .9), (.3, .2, .9), (.3, .2, .1), (.7, .2, .1), (.7, .5, .1). No parameters.

    Examples
    --------
    >>> from freshband.channels import open_air
    >>> air = open_air("besson-1", rounds=5000, seed=0)
    >>> len(air.block(5000).states), air.breakpoints
    (5000, array([1001, 2001, 3001, 4001]))

    References
    ----------
    L. Besson, E. Kaufmann, O.-A. Maillard, J. Seznec, "Efficient change-point detection for
    tackling piecewise-stationary bandits", JMLR 23, 2022.
    """

    _means = ((0.3, 0.5, 0.9), (0.3, 0.2, 0.9), (0.3, 0.2, 0.1), (0.7, 0.2, 0.1), (0.7, 0.5, 0.1))


@final
@register("besson-2")
class Besson2(_Problem):
    """Problem 2 of Besson et al.: five equal segments, all channels change each time.

    Means (.4, .5, .9), (.5, .4, .7), (.6, .3, .5), (.7, .2, .3), (.8, .1, .1). No parameters;
    reference as for `Besson1`.

    Examples
    --------
    >>> from freshband.channels import open_air
    >>> air = open_air("besson-2", rounds=5000, seed=0)
    >>> air.block(5000).means[-1].tolist()
    [0.8, 0.1, 0.1]
    """

    _means = ((0.4, 0.5, 0.9), (0.5, 0.4, 0.7), (0.6, 0.3, 0.5), (0.7, 0.2, 0.3), (0.8, 0.1, 0.1))


@final
@register("besson-4")
class Besson4(_Problem):
    """Problem 4 of Besson et al.: a long first segment, then four short ones.

    Means (.1, .5, .9), (.3, .4, .1), (.5, .3, .2), (.7, .4, .3), (.1, .5, .2). The segments begin
    after T (0, 1/2, 5/8, 3/4, 7/8) rounds, rounded down, so T must be at least 8. No parameters.

    Examples
    --------
    >>> from freshband.channels import open_air
    >>> air = open_air("besson-4", rounds=8000, seed=0)
    >>> len(air.block(8000).states), air.breakpoints
    (8000, array([4001, 5001, 6001, 7001]))

    References
    ----------
    L. Besson, "Multi-players bandit algorithms for Internet of Things networks", PhD thesis,
    CentraleSupélec, 2019, chapter 6.
    """

    _means = ((0.1, 0.5, 0.9), (0.3, 0.4, 0.1), (0.5, 0.3, 0.2), (0.7, 0.4, 0.3), (0.1, 0.5, 0.2))
    _eighths = (4, 5, 6, 7)


@final
@register("besson-random")
class BessonRandom(MeansModel):
    """The random instances of Besson et al.: small changes, not of all channels at once.

    The first means are drawn from U[0, 1]. Breakpoints are uniform over all placements with
    segments of at least ``min_gap`` rounds. At each of them every channel, with probability
    ``p_change``, moves by `±Δ`, with `Δ` from U[jump_low, jump_high] and a random sign; a move that
    would leave [0, 1] goes the other way. The reference is that of `Besson1`.

    Parameters
    ----------
    n_channels : int >= 1, default 5
        Number of channels N.
    n_breakpoints : int >= 0, default 6
        Number of breakpoints; one at which no channel moves does not count.
    p_change : float in [0, 1], default 0.5
        Probability that a channel moves at a breakpoint.
    jump_low, jump_high : float, 0 <= jump_low <= jump_high <= 0.5, default 0.05 and 0.3
        Size of a move; at most 0.5, so that one of the two directions is always open.
    min_gap : int >= 1, default 1000
        Shortest segment; (n_breakpoints + 1) min_gap must not exceed the rounds.

    Examples
    --------
    >>> from freshband.channels import open_air
    >>> air = open_air("besson-random", rounds=20_000, seed=0)
    >>> len(air.block(20_000).states), len(air.breakpoints)
    (20000, 6)
    """

    n_breakpoints: Natural = 6
    p_change: Probability = 0.5
    jump_low: Annotated[_Half, AtMost("jump_high")] = 0.05
    jump_high: _Half = 0.3
    min_gap: Count = 1000

    def _pieces(self, rounds: int, structure: _Rng) -> Iterable[_Floats]:
        lengths = _segment_lengths(rounds, self.n_breakpoints + 1, self.min_gap, structure)
        means = np.empty((len(lengths), self.n_channels))
        means[0] = structure.random(self.n_channels)
        for before, after in itertools.pairwise(means):
            moves = structure.random(self.n_channels) < self.p_change
            jump = structure.uniform(self.jump_low, self.jump_high, self.n_channels)
            jump[structure.random(self.n_channels) < 0.5] *= -1
            jump[(before + jump < 0) | (before + jump > 1)] *= -1
            after[:] = np.where(moves, before + jump, before)
        return held(means, lengths)
