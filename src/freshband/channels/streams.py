"""Streams of blocks: success rates or states, given piece by piece, read in blocks of any size.

A model describes the channel environment (*air*) as an iterator of *pieces*, arrays of shape
(rounds of the piece, n_channels) whose sizes do not depend on how it is read; a constant regime is
one row broadcast over its rounds and costs no memory. `MeansStream` cuts the pieces into blocks,
draws the states and records where the means change. Where links differ per client, a piece has
clients × n_channels columns, those of the first client first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from freshband.channels.base import Block, _Bits, _Flags, _Floats, _Rng
from freshband.errors import SequenceError
from freshband.parameters import whole_number

_FRAME = 4096
"""The largest number of rounds in a piece whose rows differ, which limits memory."""

_REMEMBERED = 100_000  # breakpoints: the first ones
_CELLS = 1 << 20  # numbers in such a piece at most, unless a single row has more
_CHUNK = 32768  # numbers drawn at a time, so that they stay in the cache
_LONG = 512  # from this number of rounds on, broadcasting a row is faster than repeating it
_TILE = 128  # rows written at a time into a constant block: four times as fast as row by row

_Scalar = TypeVar("_Scalar", bound=np.generic)


def _slices(n: int, width: int) -> Iterator[slice]:
    """Yield the slices in which to draw ``n`` rounds of ``width`` numbers each."""
    step = max(_CHUNK // width, 1)
    for begin in range(0, n, step):
        yield slice(begin, min(begin + step, n))


def _fill(out: _Floats, row: _Floats) -> None:
    """Write ``row`` into every row of ``out``, which is contiguous, a tile at a time."""
    whole = len(out) // _TILE * _TILE
    if whole:
        tile = np.empty((_TILE, len(row)))
        tile[:] = row
        out[:whole].reshape(whole // _TILE, -1)[:] = tile.reshape(-1)
    out[whole:] = row


def _rows_of(changed: _Flags) -> npt.NDArray[np.int64]:
    """Return the rows with a change, at least one."""
    if len(changed) == 1:
        return np.zeros(1, np.int64)
    cells = np.flatnonzero(changed)  # few: cheaper to fold into rows than any(axis=1)
    return np.unique(cells // changed.shape[1])


def held(
    rows: npt.NDArray[_Scalar], lengths: npt.NDArray[np.int64]
) -> Iterator[npt.NDArray[_Scalar]]:
    """Yield pieces in which row i of ``rows`` is held for ``lengths[i]`` >= 1 rounds.

    Long rows are broadcast, runs of short ones are repeated up to `_FRAME` rounds at a time.
    """
    ends = np.cumsum(lengths)
    frame = min(_FRAME, _CELLS // rows.shape[1])
    long = min(_LONG, frame + 1)
    i = 0
    while i < len(rows):
        if lengths[i] >= long:
            yield np.broadcast_to(rows[i], (int(lengths[i]), rows.shape[1]))
            i += 1
        else:
            begin = ends[i] - lengths[i]
            j = int(np.searchsorted(ends, begin + frame, side="right"))
            yield np.repeat(rows[i:j], lengths[i:j], axis=0)
            i = j


def carry_forward(first: _Floats, fresh: _Floats, change: _Flags) -> _Floats:
    """Return the rows after ``first`` if channels take their ``fresh`` value only at a ``change``.

    Examples
    --------
    >>> fresh, change = np.array([[3.0, 4.0], [5.0, 6.0]]), np.array([[True, False], [False, True]])
    >>> carry_forward(np.array([1.0, 2.0]), fresh, change).tolist()
    [[3.0, 2.0], [3.0, 6.0]]
    """
    steps = np.arange(1, len(fresh) + 1)[:, None]
    source = np.maximum.accumulate(np.where(change, steps, 0), axis=0)
    return np.take_along_axis(np.concatenate([first[None], fresh]), source, axis=0)


def revised(pieces: Iterable[_Floats], revise: Callable[[_Floats], _Floats]) -> Iterator[_Floats]:
    """Yield pieces whose rows ``revise`` has changed; a row that is broadcast stays so."""
    for piece in pieces:
        if piece.strides[0] == 0:
            row = revise(piece[:1])
            yield np.broadcast_to(row, (len(piece), row.shape[1]))
        else:
            yield revise(piece)


class _Stream(Generic[_Scalar]):
    """Plays pieces one after another, cut to the requested sizes."""

    def __init__(
        self,
        rounds: int,
        n_channels: int,
        pieces: Iterable[npt.NDArray[_Scalar]],
        clients: int | None = None,
    ) -> None:
        self._left = whole_number("rounds", rounds, at_least=1)
        self._row = (n_channels,) if clients is None else (clients, n_channels)
        self._width = math.prod(self._row)
        self._pieces = iter(pieces)
        self._rest: npt.NDArray[_Scalar] | None = None  # of the piece that is being played
        self._breakpoints = [np.empty(0, np.int64)]
        self._changed = [np.empty((0, n_channels), np.bool_)]

    def _spans(self, n: int) -> Iterator[tuple[slice, npt.NDArray[_Scalar]]]:
        """Yield the next ``n`` rows as views of their pieces, each with its place."""
        at = 0
        while at < n:
            while self._rest is None or len(self._rest) == 0:
                self._rest = next(self._pieces, None)
                if self._rest is None:
                    raise SequenceError(f"the channel model has {n - at} rounds too few")
            span, self._rest = self._rest[: n - at], self._rest[n - at :]
            yield slice(at, at + len(span)), span
            at += len(span)

    def _shaped(self, states: _Bits, means: _Floats) -> Block:
        """Return rounds of ``width`` columns as a block."""
        shape = (len(states), *self._row)
        return Block(states.reshape(shape), means.reshape(shape))

    def _take(self, n: object) -> int:
        """Return ``n`` as an int and count these rounds as drawn, or raise."""
        wanted = whole_number("n", n, at_least=1)
        if wanted > self._left:
            raise SequenceError(f"the air has {self._left} more rounds, got a call for {wanted}")
        self._left -= wanted
        return wanted

    @property
    def breakpoints(self) -> npt.NDArray[np.int64]:
        """See `Stream.breakpoints`."""
        return np.concatenate(self._breakpoints)

    @property
    def changed(self) -> _Flags:
        """See `Stream.changed`."""
        return np.concatenate(self._changed)


class MeansStream(_Stream[np.float64]):
    """A stream of states drawn from success rates; by default all draws are independent.

    Parameters
    ----------
    rounds : int
        Horizon T >= 1.
    n_channels : int
        Number of channels N.
    pieces : iterable of ndarray of float64, shape (k, n_channels) or (k, clients n_channels)
        The means, at least ``rounds`` rows in all.
    states : numpy.random.Generator
        The generator of the states: it draws one double for each column and round, in this order.
    clients : int, optional
        Number of clients M where links differ per client: each then has ``n_channels`` columns.
    draw : callable, optional
        Another way to draw: it takes the means of a block and returns its states.
    """

    def __init__(
        self,
        rounds: int,
        n_channels: int,
        pieces: Iterable[_Floats],
        states: _Rng,
        *,
        clients: int | None = None,
        draw: Callable[[_Floats], _Bits] | None = None,
    ) -> None:
        super().__init__(rounds, n_channels, pieces, clients)
        self._t = 1
        self._noted = 0
        self._last: _Floats | None = None
        self._states = states
        self._drawn = np.empty((max(_CHUNK // self._width, 1), self._width))
        self._draw = draw

    def block(self, n: int) -> Block:
        """Draw the next ``n`` rounds."""
        n = self._take(n)
        means = np.empty((n, self._width))
        for place, span in self._spans(n):
            if span.strides[0] == 0:  # a single row: nothing changes inside
                _fill(means[place], span[0])
                self._note_changes(span[:1])
            else:
                means[place] = span
                self._note_changes(span)
            self._t += len(span)
        draw = self._independent if self._draw is None else self._draw
        return self._shaped(draw(means), means)

    def _note_changes(self, span: _Floats) -> None:
        """Store where the means from round ``t`` on differ from those of the previous round."""
        if self._noted >= _REMEMBERED:
            return
        changed = span[:1] != (span[:1] if self._last is None else self._last)
        if len(span) > 1:
            changed = np.concatenate([changed, span[1:] != span[:-1]])
        self._last = span[-1:].copy()
        if changed.any():
            found = _rows_of(changed)[: _REMEMBERED - self._noted]
            self._breakpoints.append(self._t + found)
            self._changed.append(self._by_channel(changed[found]))
            self._noted += len(found)

    def _by_channel(self, changed: _Flags) -> _Flags:
        """Return which channels changed: those of which any link did."""
        if len(self._row) == 1:
            return changed
        links = changed.reshape(len(changed), *self._row)
        of_any: _Flags = np.logical_or.reduce(links, axis=1)
        return of_any

    def _independent(self, means: _Floats) -> _Bits:
        states = np.empty(means.shape, np.uint8)
        good = states.view(np.bool_)
        for part in _slices(len(means), self._width):
            drawn = self._states.random(out=self._drawn[: part.stop - part.start])
            np.less(drawn, means[part], out=good[part])
        return states


class StatesStream(_Stream[np.uint8]):
    """A stream that plays recorded states; it has no means and no breakpoints.

    Parameters
    ----------
    rounds, n_channels, clients : as in MeansStream
    pieces : iterable of ndarray of uint8, shape (k, n_channels) or (k, clients n_channels)
        The states, at least ``rounds`` rows in all.
    """

    def block(self, n: int) -> Block:
        """Play the next ``n`` rounds."""
        states = np.empty((self._take(n), self._width), np.uint8)
        for place, span in self._spans(len(states)):
            states[place] = span
        return self._shaped(states, np.full(states.shape, np.nan))
