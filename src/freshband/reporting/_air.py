"""The air of one run, averaged over columns of rounds, as maps show it.

The air is the channel environment: the states and success rates of all channels.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from freshband.channels.base import ChannelModel, open_air

COLUMNS: Final = 480  # most columns of a map, about the resolution of a printed figure
_FEWEST: Final = 60  # fewest columns of a map
_CELLS: Final = 400_000  # most cells of all views of a map together
_BLOCK: Final = 4096  # rounds that are drawn at a time, so that memory stays small


class Air(NamedTuple):
    """The air of one run in columns: arrays of shape (columns, n_channels)."""

    cuts: NDArray[np.int64]  # (columns + 1,) rounds before each column begins
    means: NDArray[np.float64] | None  # None where channels have no means
    shares: NDArray[np.float64]  # of Good rounds
    breakpoints: NDArray[np.int64]
    changed: NDArray[np.bool_]


def cut_rounds(rounds: int, rows: int = 1, views: int = 1) -> NDArray[np.int64]:
    """Return where the columns of a map begin and end; many rows or views mean fewer columns."""
    most = min(COLUMNS, max(_FEWEST, _CELLS // max(1, rows * views)))
    columns = min(rounds, most)
    return np.arange(columns + 1) * rounds // columns


def pool(values: Any, cuts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return averages over columns of rounds, the first axis; NaN where all values are NaN."""
    numbers = np.asarray(values, dtype=np.float64)
    known = ~np.isnan(numbers)
    sums = np.add.reduceat(np.where(known, numbers, 0.0), cuts[:-1], axis=0)
    counts = np.add.reduceat(known.astype(np.float64), cuts[:-1], axis=0)
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)


def read_air(
    model: ChannelModel, horizon: int, seed: int, run: int, cuts: NDArray[np.int64]
) -> Air:
    """Regenerate a run's air up to the last cut, column by column."""
    stream = open_air(model, horizon, seed, run)
    widths = np.diff(cuts)
    means, good = np.zeros((2, len(widths), model.n_channels))
    for column, width in enumerate(widths.tolist()):
        for done in range(0, width, _BLOCK):
            block = stream.block(min(_BLOCK, width - done))
            means[column] += block.means.sum(axis=0)
            good[column] += block.states.sum(axis=0)
    means, good = means / widths[:, None], good / widths[:, None]
    return Air(cuts, means if model.has_means else None, good, stream.breakpoints, stream.changed)
