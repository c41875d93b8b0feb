"""Channels of two kinds: hardly usable ones among nearly perfect ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

import numpy as np

from freshband.channels._fields import MeansModel, Natural, Probability
from freshband.channels.base import _Floats, _Rng, register
from freshband.channels.piecewise import _segment_lengths
from freshband.channels.streams import held


@final
@register("mixed")
class Mixed(MeansModel):
    """Success rates near 0 or near 1, drawn again at breakpoints.

    In every segment each channel is of the good kind with probability ``share``. Rates of the bad
    kind are drawn from U[0.02, 0.2], those of the good kind from U[0.8, 0.98].

    Parameters
    ----------
    n_channels : int >= 1, default 5
        Number of channels N.
    n_breakpoints : int >= 0, default 5
        Number of equally spaced breakpoints.
    share : float in [0, 1], default 0.5
        Probability that a channel is of the good kind.

    Notes
    -----
    **Deviations.** Not in the paper, which states no means.

    Examples
    --------
    >>> from freshband.channels import Mixed, open_air
    >>> means = open_air(Mixed(), rounds=100, seed=0).block(100).means
    >>> bool(((means < 0.21) | (means > 0.79)).all())
    True
    """

    n_breakpoints: Natural = 5
    share: Probability = 0.5

    def _pieces(self, rounds: int, structure: _Rng) -> Iterable[_Floats]:
        lengths = _segment_lengths(rounds, self.n_breakpoints + 1, 1, None)
        shape = (len(lengths), self.n_channels)
        good = structure.random(shape) < self.share
        low, high = structure.uniform(0.02, 0.2, shape), structure.uniform(0.8, 0.98, shape)
        return held(np.where(good, high, low), lengths)
