"""Your own channel model in one file: channels that take turns being good.

freshband --import examples/my_channels.py simulate --channels shifts --policies random,glr-cucb
"""

from collections.abc import Iterator
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from freshband.channels.base import Stream, register
from freshband.channels.streams import MeansStream
from freshband.parameters import Parameters, whole_number

__all__ = ["Shifts"]


@register("shifts")
@final
class Shifts(Parameters):
    """Every other channel is good, and after each shift good and bad channels change places.

    Parameters
    ----------
    n_channels : int >= 1, default 5
        Number of channels N.
    shift : int >= 1, default 500
        Number of rounds between two changes.
    good : float in [0, 1], default 0.9
        Success rate of a good channel; that of a bad one is `1 - good`.

    Notes
    -----
    **Deviations.** Not in the paper.

    Examples
    --------
    >>> from freshband.channels import build, open_air
    >>> air = open_air(build("shifts", n_channels=3, shift=2), rounds=5, seed=0)
    >>> air.block(5).means.round(1).tolist()
    [[0.9, 0.1, 0.9], [0.9, 0.1, 0.9], [0.1, 0.9, 0.1], [0.1, 0.9, 0.1], [0.9, 0.1, 0.9]]
    >>> air.breakpoints
    array([3, 5])
    """

    has_means: ClassVar[bool] = True  # False where only states are known, as in a recording

    n_channels: int = Field(default=5, ge=1)
    shift: int = Field(default=500, ge=1)
    good: float = Field(default=0.9, ge=0, le=1)

    def start(
        self, rounds: int, structure: np.random.Generator, states: np.random.Generator
    ) -> Stream:
        """Open a stream; `structure` is not used, because rates and breakpoints are fixed."""
        rounds = whole_number("rounds", rounds, at_least=1)
        return MeansStream(rounds, self.n_channels, self._pieces(rounds), states)

    def _pieces(self, rounds: int) -> Iterator[NDArray[np.float64]]:
        """Yield success rates of shape (rounds of the piece, N): a row for each shift."""
        is_even = np.arange(self.n_channels) % 2 == 0
        for number, begin in enumerate(range(0, rounds, self.shift)):
            row = np.where(is_even == (number % 2 == 0), self.good, 1 - self.good)
            yield np.broadcast_to(row, (min(self.shift, rounds - begin), self.n_channels))
