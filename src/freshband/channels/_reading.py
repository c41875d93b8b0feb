"""Matrices of numbers from files: CSV, compressed CSV, NPY, NPZ and Parquet."""

from __future__ import annotations

import csv
import fnmatch
import gzip
import importlib
import itertools
import zipfile
import zlib
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from freshband._packed import check_archive
from freshband.channels.base import _Floats
from freshband.errors import FileError, ParameterError, nearest

_UNPACKED, _RATIO = 1 << 25, 50  # bytes, and times its size: what a compressed text may hold
_CELLS, _CELLS_PER_BYTE = 4_000_000, 10  # the same for its cells, which take seconds to read
_ARRAYS = 1 << 27  # bytes of compressed arrays; eight times that as float64 if they are of bytes
_SUFFIXES = (".csv", ".csv.gz", ".npy", ".npz", ".parquet")


class Readings(NamedTuple):
    """A matrix and where it came from."""

    path: str
    values: _Floats  # (rows, columns) or (rows, clients, channels), NaN where a cell is empty
    lines: npt.NDArray[np.int64] | None = None  # (rows,) of a text file: the line of each row

    def place(self, row: int) -> str:
        """Return the place of a row, for messages."""
        line = f"row {row + 1}" if self.lines is None else f"line {self.lines[row]}"
        return f"{self.path}, {line}"


def suffix(path: str) -> str:
    """Return the file's format, one of the known endings, or raise `FileError`."""
    for known in _SUFFIXES:
        if path.lower().endswith(known):
            return known
    raise FileError(f"{path}: the name must end in one of {', '.join(_SUFFIXES)}")


def read(
    path: str,
    key: str | None,
    index: int | None,
    columns: Sequence[str] | None,
    per_client: bool = False,
) -> Readings:
    """Read a matrix, or one per row; `freshband.channels.Trace` explains the arguments.

    Raises `FileError` for a file that is missing, damaged, empty, ragged or not of numbers, and
    `ParameterError` if it has no such key, index or column.
    """
    kind = suffix(path)
    if not Path(path).is_file():
        raise FileError(f"{path}: no such file")
    if kind in (".npy", ".npz"):
        array = _load_array(path, key)
        readings = Readings(path, _cube(path, array) if per_client else _slice(path, array, index))
    else:
        wanted = ["*/*"] if per_client and columns is None else columns
        readings, names = (_read_parquet if kind == ".parquet" else _read_csv)(path, wanted)
        if per_client:
            readings = _group(readings, names)
    if readings.values.size == 0:
        raise FileError(f"{path}: holds no rows of numbers")
    return readings


def _group(readings: Readings, names: Sequence[str]) -> Readings:
    """Return columns named client/channel as (rows, clients, channels), as they first appear."""
    links: dict[str, dict[str, int]] = {}
    for place, name in enumerate(names):
        client, slash, channel = name.rpartition("/")
        if not slash:
            raise FileError(
                f"{readings.path}: column {name!r} must be named client/channel, because links "
                "differ per client"
            )
        if links.setdefault(client, {}).setdefault(channel, place) != place:
            raise FileError(f"{readings.path}: column {name!r} must not stand twice")
    channels = list(dict.fromkeys(channel for own in links.values() for channel in own))
    for client, own in links.items():
        lacking = [channel for channel in channels if channel not in own]
        if lacking:
            raise FileError(f"{readings.path}: needs a column '{client}/{lacking[0]}'")
    places = [[own[channel] for channel in channels] for own in links.values()]
    return readings._replace(values=readings.values[:, places])


def _load_array(path: str, key: str | None) -> npt.NDArray[Any]:
    try:
        if zipfile.is_zipfile(path):  # NumPy takes it for one whatever its name
            check_archive(Path(path), Path(path).stat().st_size, _ARRAYS)
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            if key is None and len(loaded.files) == 1:
                key = loaded.files[0]
            if key in loaded.files:
                return np.asarray(loaded[key])
            known = list(loaded.files)
    except Exception as error:  # headers are Python text: reading them may raise anything
        raise FileError(f"{path}: cannot be read: {_one_line(error)}") from None
    if key is None:
        raise ParameterError(f"key must be one of {', '.join(sorted(known))} for {path}, got None")
    raise ParameterError(f"key: {path} holds no array {key!r}; {nearest(key, known)}")


def _cube(path: str, values: npt.NDArray[Any]) -> _Floats:
    if values.ndim != 3:
        raise FileError(
            f"{path}: must have 3 dimensions, because links differ per client, got {values.ndim}"
        )
    return _as_floats(path, values)


def _as_floats(path: str, values: npt.NDArray[Any]) -> _Floats:
    if values.dtype.kind not in "buif":
        raise FileError(f"{path}: must hold numbers, got {values.dtype}")
    return values.astype(np.float64)


def _slice(path: str, values: npt.NDArray[Any], index: int | None) -> _Floats:
    if values.ndim == 3:
        if index is None or not 0 <= index < len(values):
            raise ParameterError(
                f"index must be a whole number in [0, {len(values) - 1}] for {path}, got {index}"
            )
        values = values[index]
    elif index is not None:
        raise ParameterError(
            f"index must be left out for {path}, which has {values.ndim} dimensions, got {index}"
        )
    if values.ndim != 2:
        raise FileError(f"{path}: must hold a matrix, got {values.ndim} dimensions")
    return _as_floats(path, values)


def _read_csv(path: str, columns: Sequence[str] | None) -> tuple[Readings, list[str]]:
    """Read a text file, and which columns; its first line is a header unless it is all numbers."""
    rows = _csv_rows(path)
    opening = next(rows, None)
    if opening is None:
        raise FileError(f"{path}: is empty")
    header = [cell.strip() for cell in opening[1]]
    width = len(header)
    if all(_number(cell) is not None for cell in header):
        rows = itertools.chain([opening], rows)
        header = [str(i) for i in range(width)]
    chosen = None if columns is None else _choose(path, header, columns)
    values, lines = array("d"), array("q")
    for line, row in rows:
        if len(row) != width:
            raise FileError(f"{path}, line {line}: must have {width} cells, got {len(row)}")
        if chosen is None:  # the first row shows which columns hold numbers
            chosen = [i for i in range(width) if _number(row[i]) is not None]
        for i in chosen:
            number = _number(row[i])
            if number is None:
                raise FileError(
                    f"{path}, line {line}: column {header[i]!r} must hold numbers, got {row[i]!r}"
                )
            values.append(number)
        lines.append(line)
    matrix = np.array(values).reshape(len(lines), -1) if values else np.empty((0, 0))
    return Readings(path, matrix, np.array(lines, np.int64)), [header[i] for i in chosen or ()]


def _csv_rows(path: str) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and cells, without blank lines and lines that begin with #."""
    try:
        with gzip.open(path) if path.lower().endswith(".gz") else Path(path).open("rb") as raw:
            if isinstance(raw, gzip.GzipFile):
                _check_unpacked(raw, Path(path).stat().st_size)
            text = (line.decode("utf-8-sig") for line in raw)
            reader = csv.reader(text, strict=True)
            for row in reader:
                if row and not row[0].lstrip().startswith("#") and any(map(str.strip, row)):
                    yield reader.line_num, row
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
        raise FileError(f"{path}: cannot be read: {_one_line(error)}") from None


def _check_unpacked(raw: gzip.GzipFile, size: int) -> None:
    """Raise OSError if a file of this size holds far more text or cells than that; rewind it."""
    text, cells = _UNPACKED + _RATIO * size, _CELLS + _CELLS_PER_BYTE * size
    while min(text, cells) >= 0 and (block := raw.read(1 << 20)):
        text -= len(block)
        cells -= block.count(b"\n") + block.count(b",")
    if min(text, cells) < 0:
        raise OSError("it unpacks to far more than its size; unpack it first, if it is yours")
    raw.seek(0)


def _number(cell: str) -> float | None:
    """Return the number in a cell, NaN if it is empty, None if it is something else."""
    try:
        return float(cell) if cell.strip() else float("nan")
    except ValueError:
        return None


def _read_parquet(path: str, columns: Sequence[str] | None) -> tuple[Readings, list[str]]:
    try:
        arrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise FileError(
            f"{path}: Parquet needs pyarrow; install it with: pip install 'freshband[traces]'"
        ) from None
    try:
        about = parquet.read_metadata(path)
        asked, size = 8 * about.num_rows * about.num_columns, Path(path).stat().st_size
        if asked > max(8 * _ARRAYS, _RATIO * size):
            raise OSError(f"{size} bytes must not unpack to {asked}; save them as NPY")
        table = parquet.read_table(path)
    except (OSError, arrow.ArrowException) as error:
        raise FileError(f"{path}: cannot be read: {_one_line(error)}") from None
    kinds = arrow.types
    numeric = [
        kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind)
        for kind in table.schema.types
    ]
    names = list(table.schema.names)
    if columns is None:
        chosen = [i for i, holds in enumerate(numeric) if holds]
    else:
        chosen = _choose(path, names, columns)
    for i in chosen:
        if not numeric[i]:
            raise FileError(
                f"{path}: column {names[i]!r} must hold numbers, got {table.schema.types[i]}"
            )
    # Whole numbers above 2^53 are rounded, as in the other formats.
    cells = [table.column(i).cast(arrow.float64(), safe=False).to_numpy() for i in chosen]
    matrix = np.column_stack(cells) if cells else np.empty((0, 0))
    return Readings(path, matrix), [names[i] for i in chosen]


def _choose(path: str, names: Sequence[str], patterns: Sequence[str]) -> list[int]:
    """Return the columns that match, in the order of the patterns, each once."""
    chosen: dict[int, None] = {}
    for pattern in patterns:
        found = [i for i, name in enumerate(names) if fnmatch.fnmatchcase(name, pattern)]
        if not found:
            raise ParameterError(
                f"columns: {path} has no column {pattern!r}; {nearest(pattern, names)}"
            )
        chosen.update(dict.fromkeys(found))
    return list(chosen)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
