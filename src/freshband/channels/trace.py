"""Channels as somebody measured them, read from a file."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias, final

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Field, model_validator

from freshband.channels.base import Stream, register
from freshband.channels.fields import Count
from freshband.channels.reading import Readings, read, suffix
from freshband.channels.streams import MeansStream, StatesStream
from freshband.channels.table import Offset, check_offset, played
from freshband.errors import FileError, ParameterError
from freshband.locating import absolute
from freshband.parameters import Parameters, whole_number

__all__ = ["Trace"]

Kind: TypeAlias = Literal["states", "ratios", "quality"]


def _as_names(value: object) -> object:
    """Return names of columns as a list; whole numbers name those of a file without a header."""
    names = value if isinstance(value, list | tuple) else [value]
    if not names or not all(isinstance(name, str) or type(name) is int for name in names):
        raise ParameterError(f"columns must be a name or a list of names, got {value!r}")
    return [str(name) for name in names]


if TYPE_CHECKING:  # what may be given; what is kept are a string and a tuple of strings
    _Text: TypeAlias = str | os.PathLike[str]
    _Names: TypeAlias = str | Sequence[str]
else:
    _Text = Annotated[str, BeforeValidator(absolute)]
    _Names = Annotated[tuple[str, ...], BeforeValidator(_as_names)]


@final
@register("trace")
class Trace(Parameters):
    r"""A recording, a row for each round (or stretch of rounds) and a column for each channel.

    Three kinds of recording are understood. *States*, 0 or 1, are played as they are. *Ratios*,
    delivery ratios in [0, 1], are means: each row stands for ``rounds_per_row`` rounds in which
    the channels are Good with these probabilities, independently. *Quality*, such as a signal
    strength, is Good where it is at least ``threshold``; a missing value (NaN, an empty cell) is
    a loss and Bad.

    Parameters
    ----------
    path : str
        A ``.csv``, ``.csv.gz``, ``.npy``, ``.npz`` or ``.parquet`` file (the last needs the extra
        ``traces``), kept as an absolute path. The first line of a CSV names the columns, unless
        it is all numbers: then they are called 0, 1, 2 and so on. Lines that begin with # are
        skipped.
    kind : {"auto", "states", "ratios", "quality"}, default "auto"
        What the numbers are. Auto: quality if ``threshold`` is given; else states if all are 0 or
        1, else ratios if all are in [0, 1], else an error.
    columns : str or list of str, optional
        CSV and Parquet: the columns to take, as names or patterns such as ``"gw*"``; all columns
        of numbers by default.
    key : str, optional
        NPZ: the array to take, where there are several.
    index : int >= 0, optional
        NPY and NPZ: which matrix of a three-dimensional array, along its first axis.
    transpose : bool, default False
        Whether channels are rows, not columns.
    threshold : float, optional
        The least quality that is Good, in the file's unit.
    rounds_per_row : int >= 1, default 1
        How many rounds each row is played for.
    wrap : bool, default False
        Whether to begin again after the last row; otherwise the run may not be longer.
    offset : int >= 0 or "random", default 0
        The row to begin with. Random: another in each run, any row if ``wrap`` is true, else one
        from which on the recording lasts.

    Notes
    -----
    Only ratios have means and breakpoints, the rounds at which a ratio changes. The file is read
    when the model is made and again only if it has changed.

    States and quality hold nothing random: every run meets the same states, and standard errors
    over runs are those of the policies' own random choices. With ``offset="random"`` they also
    tell how much the beginning matters. They are not those of independent recordings: stretches
    of one recording overlap unless it is much longer than a run, and where it wraps its end is
    followed by its beginning, which nobody measured.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from freshband.channels import Trace, open_air
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "air.csv")
    ...     _ = path.write_text("time,north,south\n0,-90,-110\n1,-95,\n")
    ...     model = Trace(path=path, columns=["north", "south"], threshold=-100)
    ...     open_air(model, rounds=2, seed=0).block(2).states.tolist()
    [[1, 0], [1, 0]]
    """

    path: _Text
    kind: Literal["auto", "states", "ratios", "quality"] = "auto"
    columns: _Names | None = None
    key: str | None = None
    index: Annotated[int, Field(ge=0)] | None = None
    transpose: bool = False
    threshold: float | None = None
    rounds_per_row: Count = 1
    wrap: bool = False
    offset: Offset = 0

    @model_validator(mode="after")
    def _agree(self) -> Trace:
        if self.kind == "quality" and self.threshold is None:
            raise ParameterError("threshold must be a number for kind='quality', got None")
        if self.kind in ("states", "ratios") and self.threshold is not None:
            raise ParameterError(
                f"threshold must be left out for kind={self.kind!r}, got {self.threshold}"
            )
        ending = suffix(str(self.path))
        arrays, tables = (".npy", ".npz"), (".csv", ".csv.gz", ".parquet")
        for name, endings in {"key": (".npz",), "index": arrays, "columns": tables}.items():
            value = getattr(self, name)
            if value is not None and ending not in endings:
                raise ParameterError(
                    f"{name} must be left out for a {ending} file, got {_listed(value)!r}"
                )
        # a bad file is the user's to know now, not at the first run
        check_offset(str(self.path), self.offset, len(self._air().rows))
        return self

    @property
    def n_channels(self) -> int:
        """The number of columns, or rows if transposed."""
        return int(self._air().rows.shape[1])

    @property
    def has_means(self) -> bool:
        """Whether the file holds ratios."""
        return self._air().kind == "ratios"

    @property
    def n_rounds(self) -> int | None:
        """The rounds the recording lasts; None if it begins again after the last row."""
        passed = 0 if self.offset == "random" else self.offset
        return None if self.wrap else (len(self._air().rows) - passed) * self.rounds_per_row

    def start(
        self, rounds: int, structure: np.random.Generator, states: np.random.Generator
    ) -> Stream:
        """Open a stream; see `ChannelModel.start`."""
        rounds = whole_number("rounds", rounds, at_least=1)
        air = self._air()
        pieces = played(
            str(self.path),
            air.rows,
            rounds,
            rounds_per_row=self.rounds_per_row,
            wrap=self.wrap,
            offset=self.offset,
            rng=structure,
        )
        if air.kind == "ratios":
            return MeansStream(rounds, self.n_channels, pieces, states)
        return StatesStream(rounds, self.n_channels, pieces)

    def _air(self) -> _Air:
        try:
            status = Path(self.path).stat()
        except OSError as error:
            raise FileError(f"{self.path}: {error.strerror}") from None
        columns = self.columns
        source = (self.path, self.key, self.index, columns, self.transpose)
        return _load(source, self.kind, self.threshold, (status.st_mtime_ns, status.st_size))


class _Air(NamedTuple):
    """A recording, ready to play: float64 rows for ratios, else uint8 states."""

    kind: Kind
    rows: npt.NDArray[Any]


@functools.lru_cache(maxsize=8)
def _load(source: tuple[Any, ...], kind: str, threshold: float | None, stamp: object) -> _Air:
    """Read and interpret a file; ``stamp`` tells one version of it from the next."""
    path, key, index, columns, transpose = source
    readings = read(path, key, index, columns)
    if transpose:
        readings = Readings(path, np.ascontiguousarray(readings.values.T))
    air = _interpret(readings, kind, threshold)
    air.rows.flags.writeable = False
    return air


def _interpret(readings: Readings, kind: str, threshold: float | None) -> _Air:
    values = readings.values
    if threshold is not None:
        with np.errstate(invalid="ignore"):  # NaN is never Good
            return _Air("quality", (values >= threshold).astype(np.uint8))
    is_state = (values == 0) | (values == 1)
    is_ratio = (values >= 0) & (values <= 1)
    if kind == "states" or (kind == "auto" and is_state.all()):
        _require(readings, is_state, "states must be 0 or 1")
        return _Air("states", values.astype(np.uint8))
    hint = " (or pick the columns, or give a threshold)" if kind == "auto" else ""
    _require(readings, is_ratio, f"ratios must be in [0, 1]{hint}")
    return _Air("ratios", values.copy())


def _require(readings: Readings, good: npt.NDArray[np.bool_], rule: str) -> None:
    if not good.all():
        row, column = np.argwhere(~good)[0]
        value = readings.values[row, column].item()
        raise FileError(f"{readings.place(int(row))}: {rule}, got {value!r}")


def _listed(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
