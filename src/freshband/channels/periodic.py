"""Channels that something blocks at regular times, such as a radar or a shift in a factory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, final

import numpy as np

from freshband.channels._fields import AtMost, Count, RatedBand
from freshband.channels.base import _Floats, _Rng, register
from freshband.channels.streams import held


@final
@register("periodic")
class Periodic(RatedBand):
    """Stationary channels of which the same ``width`` are blocked at regular times.

    A random set of channels is Bad in the first ``blocked`` rounds of every period of ``period``
    rounds, counted from a random round. The others, and these in the rest of the period, are Good
    with probability `μ_k`. The means of a stream are 0 for a channel while it is blocked.

    Parameters
    ----------
    n_channels : int >= 1, default 5
        Number of channels N; follows from ``means`` where those are given.
    mean_low, mean_high : float, 0 <= mean_low <= mean_high <= 1, default 0.1 and 0.9
        The means of free channels are drawn from U[mean_low, mean_high], once per run.
    means : list of float in [0, 1], optional
        The means of free channels themselves.
    width : int in [1, n_channels], default 2
        Number of channels that are blocked.
    period : int >= 1, default 200
        Rounds from one beginning to the next.
    blocked : int in [1, period], default 100
        Rounds of each period in which the channels are blocked.

    Notes
    -----
    **Deviations.** Not in the paper. Only `bayes` learns a period, one of up to 16 rounds.

    Examples
    --------
    >>> from freshband.channels import Periodic, open_air
    >>> model = Periodic(means=[1], width=1, period=4, blocked=2)
    >>> "".join(map(str, open_air(model, rounds=12, seed=1).block(12).states[:, 0]))
    '110011001100'
    """

    width: Annotated[Count, AtMost("n_channels")] = 2
    period: Count = 200
    blocked: Annotated[Count, AtMost("period")] = 100

    def _pieces(self, rounds: int, structure: _Rng) -> Iterator[_Floats]:
        free = self._rates(structure)
        closed = free.copy()
        closed[structure.permutation(self.n_channels)[: self.width]] = 0
        first = int(structure.integers(self.period))  # round 0 has this place in its period
        begins = np.arange(rounds // self.period + 2) * self.period - first
        cuts = np.concatenate([[0, rounds], begins, begins + self.blocked])
        cuts = np.unique(np.clip(cuts, 0, rounds))
        places = (cuts[:-1] + first) % self.period
        rows = np.where((places < self.blocked)[:, None], closed, free)
        return held(rows, np.diff(cuts))
