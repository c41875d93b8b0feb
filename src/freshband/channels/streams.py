"""The machinery under the models: tapes of success rates, played in blocks of any size.

A model describes its air as an iterator of *pieces*, arrays of shape (rounds of the piece,
n_channels) whose sizes do not depend on how the air is read; a constant regime is one row
broadcast over its rounds and costs no memory. `MeansStream` cuts the pieces into blocks, draws the
states and notes where the means change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from freshband.channels.base import Block
from freshband.errors import SequenceError
from freshband.parameters import whole_number

__all__ = [
    "FRAME",
    "REMEMBERED",
    "Changes",
    "MeansStream",
    "StatesStream",
    "carry_forward",
    "fill",
    "held",
    "slices",
    "take",
]

FRAME = 4096
"""Rounds in a piece whose rows differ: what a model may hold in memory at once."""

REMEMBERED = 100_000
"""Breakpoints a stream remembers: the first ones."""

_CHUNK = 32768  # numbers drawn at a time: they stay in the cache
_LONG = 512  # rounds from which on broadcasting a row beats repeating it
_TILE = 128  # rows written at a time into a constant block: four times as fast as row by row

Scalar = TypeVar("Scalar", bound=np.generic)
Floats = npt.NDArray[np.float64]
Bits = npt.NDArray[np.uint8]


def take(n: object, left: int) -> int:
    """Return ``n`` as an int if that many rounds are left to draw, else raise.

    Examples
    --------
    >>> take(3, left=5)
    3
    >>> take(6, left=5)
    Traceback (most recent call last):
    freshband.errors.SequenceError: the air has 5 more rounds, got a call for 6
    """
    wanted = whole_number("n", n, at_least=1)
    if wanted > left:
        raise SequenceError(f"the air has {left} more rounds, got a call for {wanted}")
    return wanted


def slices(n: int, width: int) -> Iterator[slice]:
    """Yield the slices in which to draw ``n`` rounds of ``width`` numbers each.

    Examples
    --------
    >>> list(slices(5000, 10))
    [slice(0, 3276, None), slice(3276, 5000, None)]
    """
    step = max(_CHUNK // width, 1)
    for begin in range(0, n, step):
        yield slice(begin, min(begin + step, n))


def fill(out: Floats, row: Floats) -> None:
    """Write ``row`` into every row of ``out``, which is contiguous, a tile at a time.

    Examples
    --------
    >>> out = np.zeros((100, 2))
    >>> fill(out, np.array([0.5, 1.0]))
    >>> out.sum(axis=0)
    array([ 50., 100.])
    """
    whole = len(out) // _TILE * _TILE
    if whole:
        tile = np.empty((_TILE, len(row)))
        tile[:] = row
        out[:whole].reshape(whole // _TILE, -1)[:] = tile.reshape(-1)
    out[whole:] = row


def held(
    rows: npt.NDArray[Scalar], lengths: npt.NDArray[np.int64]
) -> Iterator[npt.NDArray[Scalar]]:
    """Yield pieces in which row i of ``rows`` is held for ``lengths[i]`` >= 1 rounds.

    Long rows are broadcast, runs of short ones are repeated up to `FRAME` rounds at a time.

    Examples
    --------
    >>> [piece.tolist() for piece in held(np.array([[1, 2], [3, 4]]), np.array([1, 2]))]
    [[[1, 2], [3, 4], [3, 4]]]
    """
    ends = np.cumsum(lengths)
    i = 0
    while i < len(rows):
        if lengths[i] >= _LONG:
            yield np.broadcast_to(rows[i], (int(lengths[i]), rows.shape[1]))
            i += 1
        else:
            begin = ends[i] - lengths[i]
            j = int(np.searchsorted(ends, begin + FRAME, side="right"))
            yield np.repeat(rows[i:j], lengths[i:j], axis=0)
            i = j


def carry_forward(first: Floats, fresh: Floats, change: npt.NDArray[np.bool_]) -> Floats:
    """Return the rows that follow ``first`` when only some channels take the fresh value.

    Parameters
    ----------
    first : ndarray of float64, shape (n_channels,)
        The row before.
    fresh : ndarray of float64, shape (k, n_channels)
        What a channel changes to, if it changes.
    change : ndarray of bool, shape (k, n_channels)
        Which channels change at each of the k steps.

    Returns
    -------
    ndarray of float64, shape (k, n_channels)

    Examples
    --------
    >>> rows = carry_forward(
    ...     np.array([1.0, 2.0]),
    ...     np.array([[3.0, 4.0], [5.0, 6.0]]),
    ...     np.array([[True, False], [False, True]]),
    ... )
    >>> rows.tolist()
    [[3.0, 2.0], [3.0, 6.0]]
    """
    steps = np.arange(1, len(fresh) + 1)[:, None]
    source = np.maximum.accumulate(np.where(change, steps, 0), axis=0)
    return np.take_along_axis(np.concatenate([first[None], fresh]), source, axis=0)


class Changes:
    """Notes at which rounds which channels' means changed, up to `REMEMBERED` of them."""

    def __init__(self, n_channels: int) -> None:
        self._rounds = [np.empty(0, np.int64)]
        self._changed = [np.empty((0, n_channels), np.bool_)]
        self._count = 0
        self._last: Floats | None = None

    def note(self, first_round: int, span: Floats) -> None:
        """Take in the means of consecutive rounds; the first of them is ``first_round``."""
        if self._count >= REMEMBERED:
            return
        if span.strides[0] == 0:  # one row held: nothing can change inside
            self._note_row(first_round, span[0])
            return
        before = span[:1] if self._last is None else self._last[None]
        changed = np.empty(span.shape, np.bool_)
        np.not_equal(span[:1], before, out=changed[:1])
        np.not_equal(span[1:], span[:-1], out=changed[1:])
        self._last = span[-1].copy()
        cells = np.flatnonzero(changed)  # few: cheaper to fold into rows than any(axis=1)
        if len(cells) == 0:
            return
        found = np.unique(cells // len(changed[0]))[: REMEMBERED - self._count]
        self._rounds.append(first_round + found)
        self._changed.append(changed[found])
        self._count += len(found)

    def _note_row(self, first_round: int, row: Floats) -> None:
        changed = row != (row if self._last is None else self._last)
        self._last = row.copy()
        if changed.any():
            self._rounds.append(np.array([first_round]))
            self._changed.append(changed[None])
            self._count += 1

    @property
    def rounds(self) -> npt.NDArray[np.int64]:
        """The rounds noted, in order."""
        return np.concatenate(self._rounds)

    @property
    def changed(self) -> npt.NDArray[np.bool_]:
        """The channels that changed, a row for each of `rounds`."""
        return np.concatenate(self._changed)


class _Tape(Generic[Scalar]):
    """Plays pieces one after another, cut to whatever is asked for."""

    def __init__(self, pieces: Iterable[npt.NDArray[Scalar]]) -> None:
        self._pieces = iter(pieces)
        self._rest: npt.NDArray[Scalar] = np.empty((0, 0))  # type: ignore[assignment]  # unread

    def spans(self, n: int) -> Iterator[npt.NDArray[Scalar]]:
        """Yield the next ``n`` rows as views of the pieces they lie in."""
        while n > 0:
            while len(self._rest) == 0:
                piece = next(self._pieces, None)
                if piece is None:
                    raise SequenceError(f"the channel model describes {n} rounds too few")
                self._rest = piece
            span, self._rest = self._rest[:n], self._rest[n:]
            n -= len(span)
            yield span


class MeansStream:
    """A stream of independent draws, Good with the mean of the round.

    Parameters
    ----------
    rounds : int
        Horizon T >= 1.
    n_channels : int
        Number of channels N.
    pieces : iterable of ndarray of float64, shape (k, n_channels)
        The means, at least ``rounds`` rows in all.
    states : numpy.random.Generator
        Draws the states: one double for each channel and round, in this order.
    """

    def __init__(
        self, rounds: int, n_channels: int, pieces: Iterable[Floats], states: np.random.Generator
    ) -> None:
        self._left = whole_number("rounds", rounds, at_least=1)
        self._tape = _Tape(pieces)
        self._changes = Changes(n_channels)
        self._n_channels = n_channels
        self._states = states
        self._drawn = np.empty((max(_CHUNK // n_channels, 1), n_channels))
        self._t = 1

    def block(self, n: int) -> Block:
        """Draw the next ``n`` rounds."""
        n = take(n, self._left)
        means = np.empty((n, self._n_channels))
        at = 0
        for span in self._tape.spans(n):
            self._changes.note(self._t + at, span)
            rows = means[at : at + len(span)]
            if span.strides[0] == 0:
                fill(rows, span[0])
            else:
                rows[:] = span
            at += len(span)
        self._left -= n
        self._t += n
        states = np.empty(means.shape, np.uint8)
        good = states.view(np.bool_)
        for part in slices(n, self._n_channels):
            drawn = self._states.random(out=self._drawn[: part.stop - part.start])
            np.less(drawn, means[part], out=good[part])
        return Block(states, means)

    @property
    def breakpoints(self) -> npt.NDArray[np.int64]:
        """See `Stream.breakpoints`."""
        return self._changes.rounds

    @property
    def changed(self) -> npt.NDArray[np.bool_]:
        """See `Stream.changed`."""
        return self._changes.changed


class StatesStream:
    """A stream that plays recorded states; it has no means and no breakpoints.

    Parameters
    ----------
    rounds : int
        Horizon T >= 1.
    n_channels : int
        Number of channels N.
    pieces : iterable of ndarray of uint8, shape (k, n_channels)
        The states, at least ``rounds`` rows in all.
    """

    def __init__(self, rounds: int, n_channels: int, pieces: Iterable[Bits]) -> None:
        self._left = whole_number("rounds", rounds, at_least=1)
        self._tape = _Tape(pieces)
        self._n_channels = n_channels

    def block(self, n: int) -> Block:
        """Play the next ``n`` rounds."""
        n = take(n, self._left)
        states = np.empty((n, self._n_channels), np.uint8)
        at = 0
        for span in self._tape.spans(n):
            states[at : at + len(span)] = span
            at += len(span)
        self._left -= n
        return Block(states, np.full(states.shape, np.nan))

    @property
    def breakpoints(self) -> npt.NDArray[np.int64]:
        """Always empty."""
        return np.empty(0, np.int64)

    @property
    def changed(self) -> npt.NDArray[np.bool_]:
        """Always empty."""
        return np.empty((0, self._n_channels), np.bool_)
