"""Rows played round by round, once or repeatedly: shared by tables and traces."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import Field

from freshband.channels.base import Stream, _Rng, fit_clients
from freshband.channels.streams import _FRAME, MeansStream, StatesStream, held
from freshband.errors import ParameterError
from freshband.parameters import Parameters, whole_number

Offset: TypeAlias = Annotated[int, Field(ge=0)] | Literal["random"]


class Recording(NamedTuple):
    """Rows of means or of states, and how they are played."""

    source: str  # for messages
    rows: npt.NDArray[Any]  # (rows, n_channels) or, where links differ, (rows, M, n_channels)
    has_means: bool
    wrap: bool
    offset: int | Literal["random"]
    rounds_per_row: int = 1
    shuffle: bool = False

    def check_offset(self) -> None:
        """Refuse to begin with a row that does not exist."""
        if self.offset != "random" and self.offset >= len(self.rows):
            raise ParameterError(
                f"offset must be less than {len(self.rows)}, the rows of {self.source}, "
                f"got {self.offset}"
            )

    def pieces(self, rounds: int, structure: _Rng) -> Iterator[npt.NDArray[Any]]:
        """Return the rows from the offset on, each for its rounds; raise if there are too few."""
        offset = self._draw_offset(rounds, structure) if self.offset == "random" else self.offset
        rows, source = self.rows, self.source
        for axis in range(1, rows.ndim) if self.shuffle else ():  # clients, then channels
            rows = rows.take(structure.permutation(rows.shape[axis]), axis=axis)
        rows = rows.reshape(len(rows), -1)
        if offset > 0:
            rows = np.roll(rows, -offset, axis=0) if self.wrap else rows[offset:]
            source = f"{source} from row {offset} on"
        length = len(rows) * self.rounds_per_row
        if length < rounds and not self.wrap:
            raise ParameterError(
                f"rounds must be at most {length}, the length of {source} (or set wrap=true to "
                f"begin again), got {rounds}"
            )
        if length < min(rounds, _FRAME):  # a short table is played many times: repeat it in memory
            rows = np.tile(rows, (-(-min(rounds, _FRAME) // length), 1))
        lengths = np.full(len(rows), self.rounds_per_row, np.int64)
        times = -(-rounds // (len(rows) * self.rounds_per_row))
        return (piece for _ in range(times) for piece in held(rows, lengths))

    def _draw_offset(self, rounds: int, structure: _Rng) -> int:
        """Draw any row, or without wrapping a row with enough rows after it."""
        needed = -(-rounds // self.rounds_per_row)
        starts = len(self.rows) if self.wrap else len(self.rows) - needed + 1
        if starts == 1:
            raise ParameterError(
                f"offset='random' needs fewer rounds than the "
                f"{len(self.rows) * self.rounds_per_row} of {self.source} to have a choice, or "
                f"wrap=true and several rows, got {rounds}"
            )
        return int(structure.integers(max(starts, 1)))


class Recorded(Parameters):
    """A model that plays a recording."""

    per_client: bool = False

    @abstractmethod
    def _recording(self) -> Recording:
        """Return what it plays."""

    @property
    def n_channels(self) -> int:
        """The number of channels."""
        return int(self._recording().rows.shape[-1])

    @property
    def n_clients(self) -> int | None:
        """The number of clients whose links were recorded; see `LinkModel.n_clients`."""
        return int(self._recording().rows.shape[1]) if self.per_client else None

    @property
    def has_means(self) -> bool:
        """Whether the rows are means."""
        return self._recording().has_means

    @property
    def n_rounds(self) -> int | None:
        """The number of rounds the recording lasts; None if it begins again after the last row."""
        recording = self._recording()
        if recording.wrap:
            return None
        passed = 0 if recording.offset == "random" else recording.offset
        return (len(recording.rows) - passed) * recording.rounds_per_row

    def start(
        self, rounds: int, structure: _Rng, states: _Rng, clients: int | None = None
    ) -> Stream:
        """Open a stream; see `LinkModel.start`."""
        rounds = whole_number("rounds", rounds, at_least=1)
        clients = fit_clients(self, clients) if self.per_client else None
        recording = self._recording()
        pieces = recording.pieces(rounds, structure)
        n_channels = recording.rows.shape[-1]
        if recording.has_means:
            return MeansStream(rounds, n_channels, pieces, states, clients=clients)
        return StatesStream(rounds, n_channels, pieces, clients)
