"""NetCDF files with a seal: a digest at the end of the file that reveals damage.

HDF5 readers ignore it.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import math
import os
import platform
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import h5py
import xarray as xr

from freshband._files import replacing
from freshband._packed import MUCH, check_unpacked
from freshband._parsing import check_depth, parse_json
from freshband.errors import FileError, reason, shown
from freshband.parameters import file_path

_SEAL = b"\nfreshband sha256 "  # at the end of a file, followed by the digest of all before it
_WORTH_PACKING = 512  # arrays with fewer values are not compressed


_version = functools.cache(version)  # each looks through all that is installed


def versions_of(libraries: Iterable[str]) -> str:
    """Return Python's version and those of installed libraries, as JSON."""
    held = {name: _version(name) for name in libraries}
    return json.dumps({"python": platform.python_version(), **held})


def save_sealed(dataset: xr.Dataset, path: str | os.PathLike[str]) -> None:
    """Write a dataset as NetCDF with a seal, completely or not at all."""
    packed = {"zlib": True, "complevel": 4}
    least = _WORTH_PACKING if dataset.nbytes <= MUCH else math.inf  # see `load_sealed`
    encoding = {name: packed for name, array in dataset.items() if array.size >= least}
    with replacing(path) as scratch:
        dataset.to_netcdf(scratch, engine="h5netcdf", encoding=encoding)
        with scratch.open("r+b") as file:
            digest = hashlib.file_digest(file, "sha256").digest()
            file.write(_SEAL + digest)


def is_whole(path: Path) -> bool:
    """Whether a file has the seal that belongs to its content."""
    try:
        _unsealed(path)
    except FileError:
        return False
    return True


def _unsealed(source: Path) -> bytes:
    """Return what a file holds before its seal, or raise `FileError`."""
    try:
        data = source.read_bytes()
    except OSError as error:
        raise FileError(f"cannot read {source}: {reason(error)}") from None
    body, found, digest = data.rpartition(_SEAL)
    if not found:
        raise FileError(f"{source} is damaged or not a result: it has no seal at its end")
    if hashlib.sha256(body).digest() != digest:
        raise FileError(f"{source} is damaged: its checksum does not match")
    return body


def load_sealed(path: str | os.PathLike[str], *forms: str) -> xr.Dataset:
    """Read a dataset whose attribute ``format`` is one of ``forms``.

    Raises `FileError` if the file is missing, damaged, of another format, or has no seal: HDF5
    reads other numbers from a damaged file, or hangs. So does a small file that asks for much
    memory: anybody can write one, seal included, with arrays that are compressed or not there.
    """
    source = file_path("path", path)
    body = _unsealed(source)
    try:
        with h5py.File(io.BytesIO(body)) as file:  # h5netcdf would report a failure twice
            check_unpacked(_count_bytes(file), len(body), MUCH + (1 << 20))
        dataset = xr.load_dataset(io.BytesIO(body), engine="h5netcdf")
        for value in dataset.attrs.values():
            if isinstance(value, str):
                check_depth(value)  # of JSON
    except Exception:  # HDF5 may raise any exception
        raise FileError(f"{source} is damaged or not a result") from None
    form = dataset.attrs.get("format")
    if form not in forms:
        known = " or ".join(repr(each) for each in forms)
        raise FileError(f"{source} must have the format {known}, got {shown(form)}")
    with complete(source):
        if not isinstance(parse_json(dataset.attrs["config"]), dict):
            raise TypeError("its configuration is no table")
    return dataset


def _count_bytes(file: h5py.File) -> int:
    """Return the bytes of all arrays in a file."""
    sizes = []

    def note(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            sizes.append(math.prod(item.shape or ()) * item.dtype.itemsize)

    file.visititems(note)
    return sum(sizes)


@contextmanager
def complete(source: str | os.PathLike[str]) -> Iterator[None]:
    """Raise `FileError` where numbers and settings of a file do not belong together.

    The seal shows damage, not who made the file.
    """
    try:
        yield
    except (
        LookupError, AttributeError, TypeError, ValueError, ArithmeticError, MemoryError,
        RecursionError,
    ) as error:  # fmt: skip
        raise FileError(f"{os.fspath(source)} is not a complete result: {reason(error)}") from None
