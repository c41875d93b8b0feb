"""The air of one run, averaged over columns of rounds, as maps show it.

The air is the channel environment: the states and success rates of all channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from freshband.channels.base import Block, ChannelModel, open_air
from freshband.fleet.conditions import ConditionStream

MOST_DRAWN: Final = 200_000_000  # most random numbers that are drawn again for a picture
COLUMNS: Final = 480  # most columns of a map, about the resolution of a printed figure
_FEWEST: Final = 60  # fewest columns of a map
_CELLS: Final = 400_000  # most cells of all views of a map together
_BLOCK: Final = 4096  # rounds that are drawn at a time, so that memory stays small


class Air(NamedTuple):
    """The air of one run in columns.

    Arrays have the shape (columns, n_channels), or (columns, clients, n_channels) where links
    differ per client.
    """

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
    model: ChannelModel,
    horizon: int,
    seed: int,
    run: int,
    cuts: NDArray[np.int64],
    clients: int | None = None,
    fates: ConditionStream | None = None,
) -> Air:
    """Regenerate a run's air up to the last cut, in blocks.

    ``fates`` say which channels are missing, if some are: those are Bad.
    """
    stream = open_air(model, horizon, seed, run, clients)
    means, good = [], []
    for begin, end in _together(cuts):
        starts, left = cuts[begin:end] - cuts[begin], int(cuts[end] - cuts[begin])
        sizes = (min(_BLOCK, left - at) for at in range(0, left, _BLOCK))
        blocks = (_without_missing(stream.block(size), fates) for size in sizes)
        sums = [
            (
                np.add.reduceat(block.means, starts, axis=0),
                np.add.reduceat(block.states, starts, axis=0, dtype=np.int64),
            )
            for block in blocks
        ]
        widths = np.diff(cuts[begin : end + 1]).reshape(-1, *[1] * (sums[0][0].ndim - 1))
        means.append(sum(mean for mean, _ in sums) / widths)
        good.append(sum(states for _, states in sums) / widths)
    rates = np.concatenate(means) if model.has_means else None
    return Air(cuts, rates, np.concatenate(good), stream.breakpoints, stream.changed)


def _together(cuts: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield which columns are drawn at once: as many as fit in a block, or a longer one alone."""
    begin, last = 0, len(cuts) - 1
    while begin < last:
        fitting = int(np.searchsorted(cuts, cuts[begin] + _BLOCK, side="right")) - 1
        yield begin, max(begin + 1, fitting)
        begin = max(begin + 1, fitting)


def _without_missing(block: Block, fates: ConditionStream | None) -> Block:
    """Return a block in which missing channels are Bad."""
    if fates is None:
        return block
    there = fates.block(len(block.states)).available
    there = there[:, None] if block.states.ndim == 3 else there
    return Block(block.states * there, block.means * there)


def average_clients(air: Air) -> Air:
    """Return the air in which every channel has the average of its links."""
    means = None if air.means is None else air.means.mean(axis=1)
    return air._replace(means=means, shares=air.shares.mean(axis=1))
