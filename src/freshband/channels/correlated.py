"""Channels that fade together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

import numpy as np

from freshband.channels._fields import Band, Natural, Probability
from freshband.channels.base import Stream, _Bits, _Floats, _Rng, register
from freshband.channels.piecewise import Piecewise
from freshband.channels.streams import MeansStream, _slices
from freshband.parameters import whole_number


@final
@register("correlated")
class Correlated(Band):
    """Channels whose outcomes of one round depend on each other.

    Channel k is Good if a uniform number is below `μ_k`, as ever. With probability ``together`` the
    number of a round is the same for all channels, otherwise each has its own. So every channel has
    the success rate it would have alone, but a bad round is bad for many channels at once.

    Parameters
    ----------
    n_channels : int >= 1, default 5
        Number of channels N.
    mean_low, mean_high : float, 0 <= mean_low <= mean_high <= 1, default 0.1 and 0.9
        The means are drawn from U[mean_low, mean_high].
    n_breakpoints : int >= 0, default 5
        Number of equally spaced breakpoints, at each of which all means are drawn again.
    together : float in [0, 1], default 0.5
        Probability that all channels share the number of a round.

    Notes
    -----
    **Deviations.** Not in the paper, whose channels are independent.

    Examples
    --------
    >>> from freshband.channels import Correlated, open_air
    >>> block = open_air(Correlated(together=1), rounds=1000, seed=0).block(1000)
    >>> best = block.means.argmax(axis=1)[:, None]
    >>> alone = (block.states.max(axis=1) > np.take_along_axis(block.states, best, 1)[:, 0]).sum()
    >>> int(alone)  # where the best channel is Bad, no other is Good
    0
    """

    n_breakpoints: Natural = 5
    together: Probability = 0.5

    def start(self, rounds: int, structure: _Rng, states: _Rng) -> Stream:
        """Open a stream; see `ChannelModel.start`."""
        rounds = whole_number("rounds", rounds, at_least=1)

        def draw(means: _Floats) -> _Bits:
            drawn = np.empty(means.shape)
            for part in _slices(len(means), self.n_channels + 2):
                numbers = states.random((part.stop - part.start, self.n_channels + 2))
                shared = numbers[:, :1] < self.together
                drawn[part] = np.where(shared, numbers[:, 1:2], numbers[:, 2:])
            return (drawn < means).astype(np.uint8)

        pieces = self._pieces(rounds, structure)
        return MeansStream(rounds, self.n_channels, pieces, states, draw=draw)

    def _pieces(self, rounds: int, structure: _Rng) -> Iterable[_Floats]:
        return Piecewise(**self.model_dump(exclude={"together"}))._pieces(rounds, structure)
