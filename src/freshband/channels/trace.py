"""Channels as they were measured, read from a file."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, final

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, model_validator

from freshband._locating import absolute
from freshband.channels._fields import Count, Natural, forbid
from freshband.channels._reading import Readings, read, suffix
from freshband.channels._recording import Offset, Recorded, Recording
from freshband.channels.base import register
from freshband.errors import FileError, ParameterError


def _as_names(value: object) -> object:
    """Return names of columns as a list; numbers name the columns of a file without a header."""
    names = value if isinstance(value, list | tuple) else [value]
    if not names or not all(isinstance(name, str) or type(name) is int for name in names):
        raise ParameterError(f"columns must be a name or a list of names, got {value!r}")
    return [str(name) for name in names]


if TYPE_CHECKING:  # what users may pass; stored as a string and a tuple of strings
    _Text: TypeAlias = str | os.PathLike[str]
    _Names: TypeAlias = str | Sequence[str]
else:
    _Text = Annotated[str, BeforeValidator(absolute)]
    _Names = Annotated[tuple[str, ...], BeforeValidator(_as_names)]


@final
@register("trace")
class Trace(Recorded):
    r"""A recording, with a row for each round (or several rounds) and a column for each channel.

    There are three kinds of recordings. *States*, 0 or 1, are played as they are. *Ratios*,
    delivery ratios in [0, 1], are means: each row stands for ``rounds_per_row`` rounds in which
    the channels are Good with these probabilities, independently. *Quality*, such as a signal
    strength, is Good where it is at least ``threshold``; a missing value (NaN or an empty cell)
    counts as Bad.

    Parameters
    ----------
    path : str
        A ``.csv``, ``.csv.gz``, ``.npy``, ``.npz`` or ``.parquet`` file (the last needs the extra
        ``traces``), stored as an absolute path. The first line of a CSV file names the columns;
        if it holds only numbers, the columns are called 0, 1, 2 and so on. Lines that begin with
        # are skipped.
    kind : {"auto", "states", "ratios", "quality"}, default "auto"
        What the numbers mean. Auto: quality if ``threshold`` is given, otherwise states if all
        are 0 or 1, otherwise ratios, which must be in [0, 1].
    columns : str or list of str, optional
        The columns of a CSV or Parquet file to use, as names or patterns such as ``"gw*"``; by
        default all columns of numbers.
    key : str, optional
        The name of the array in an NPZ file that holds several.
    index : int >= 0, optional
        Which matrix of a three-dimensional array in an NPY or NPZ file, along its first axis; not
        with ``per_client``.
    transpose : bool, default False
        Whether each row, instead of each column, is a channel.
    threshold : float, optional
        The lowest quality that is Good, in the file's unit.
    rounds_per_row : int >= 1, default 1
        The number of rounds for which each row is played.
    wrap : bool, default False
        Whether to begin again after the last row; otherwise a longer run is an error.
    offset : int >= 0 or "random", default 0
        The row to begin with. Random: a new row is drawn for each run, any row if ``wrap`` is
        true, otherwise one after which enough rows are left.
    shuffle : bool, default False
        Whether clients and channels are numbered anew in each run, so that no policy gains from
        the order of the columns.
    per_client : bool, default False
        Whether links differ per client. The file then tells both clients and channels: an array
        has the shape (rows, clients, channels), or (clients, channels, rows) with ``transpose``;
        a column of a CSV or Parquet file is called ``client/channel``, such as
        ``robot3/868.1``, and by default all columns with a slash are used. Clients and channels
        are numbered as they first appear. Files for single clients can be joined with
        ``numpy.stack(arrays, axis=1)``.

    Notes
    -----
    Only ratios have means and breakpoints, the rounds at which a ratio changes. The file is read
    when the model is created and again only if it has changed.

    States and quality contain nothing random: every run meets the same states. The page
    *Simulation* explains what standard errors then mean, with and without ``offset="random"``.

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
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "links.csv")
    ...     _ = path.write_text("time,ann/868,ann/915,bob/868,bob/915\n0,1,0,0,1\n1,1,1,0,1\n")
    ...     model = Trace(path=path, per_client=True)
    ...     open_air(model, rounds=2, seed=0).block(2).states.tolist()
    [[[1, 0], [0, 1]], [[1, 1], [0, 1]]]
    """

    path: _Text
    kind: Literal["auto", "states", "ratios", "quality"] = "auto"
    columns: _Names | None = None
    key: str | None = None
    index: Natural | None = None
    transpose: bool = False
    threshold: float | None = None
    rounds_per_row: Count = 1
    wrap: bool = False
    offset: Offset = 0
    shuffle: bool = False

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
                got = list(value) if isinstance(value, tuple) else value
                raise ParameterError(f"{name} must be left out for a {ending} file, got {got!r}")
        if self.per_client:
            forbid(self, "links differ per client", "index")
            if self.transpose and ending in tables:
                raise ParameterError(
                    f"transpose must be left out for the columns of a {ending} file, which are "
                    "links, got true"
                )
        self._recording().check_offset()  # reads the file now, not in a run
        return self

    def _recording(self) -> Recording:
        try:
            status = Path(self.path).stat()
        except OSError as error:
            raise FileError(f"{self.path}: {error.strerror}") from None
        source = (self.path, self.key, self.index, self.columns, self.per_client)
        stamp = (status.st_mtime_ns, status.st_size)
        rows = _load(source, self.transpose, self.kind, self.threshold, stamp)
        has_means = rows.dtype == np.float64
        path = str(self.path)
        return Recording(
            path, rows, has_means, self.wrap, self.offset, self.rounds_per_row, self.shuffle
        )


@functools.lru_cache(maxsize=8)
def _load(
    source: tuple[Any, ...], transpose: bool, kind: str, threshold: float | None, stamp: object
) -> npt.NDArray[Any]:
    """Read a file: float64 ratios or uint8 states; ``stamp`` changes when the file does."""
    readings = read(*source)
    if transpose:  # the last axis counts the rows
        values = np.ascontiguousarray(np.moveaxis(readings.values, -1, 0))
        readings = Readings(readings.path, values)
    rows = _interpret(readings, kind, threshold)
    rows.flags.writeable = False
    return rows


def _interpret(readings: Readings, kind: str, threshold: float | None) -> npt.NDArray[Any]:
    values = readings.values
    if threshold is not None:
        with np.errstate(invalid="ignore"):  # NaN is never Good
            return (values >= threshold).astype(np.uint8)
    is_state = (values == 0) | (values == 1)
    if kind == "states" or (kind == "auto" and is_state.all()):
        _require(readings, is_state, "states must be 0 or 1")
        return values.astype(np.uint8)
    hint = " (or pick the columns, or give a threshold)" if kind == "auto" else ""
    _require(readings, (values >= 0) & (values <= 1), f"ratios must be in [0, 1]{hint}")
    return values.copy()


def _require(readings: Readings, good: npt.NDArray[np.bool_], rule: str) -> None:
    if not good.all():
        place = tuple(np.argwhere(~good)[0])
        value = readings.values[place].item()
        raise FileError(f"{readings.place(int(place[0]))}: {rule}, got {value!r}")
