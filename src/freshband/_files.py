"""The one place that writes files: each is complete or absent, and durable.

A file is written beside its target under a random name, synced to the disk, and renamed atomically.
So a killed process, a full disk or a power cut leaves the old file or the new one, and several
threads and processes may write the same file at once: the last one wins.
"""

from __future__ import annotations

import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from freshband.errors import FileError, reason
from freshband.parameters import file_path

_SCRATCH: Final = ".freshband-"  # then 16 random digits and the name, whose ending is the format

_STALE: Final = 3600.0  # seconds after which nobody writes to a scratch file any more


def check_writable(path: str | os.PathLike[str]) -> Path:
    """Return the path if a file can be written there, or raise `FileError` before work begins."""
    target = file_path("path", path)
    folder = _nearest_folder(target)
    if not os.access(folder, os.W_OK):
        raise FileError(f"cannot write {target}: {folder} is not a writable folder")
    return target


def _nearest_folder(target: Path) -> Path:
    """Return the folder a file would be written to, or the nearest one above that exists."""
    try:
        is_folder, folder = target.is_dir(), target.parent
        while not folder.exists():
            folder = folder.parent
    except OSError as error:
        raise FileError(f"cannot write {target}: {reason(error)}") from None
    if is_folder:
        raise FileError(f"cannot write {target}: it is a folder")
    if not folder.is_dir():
        raise FileError(f"cannot write {target}: {folder} is not a writable folder")
    return folder


def check_appendable(path: str | os.PathLike[str]) -> Path:
    """Return the path after opening the file for appending, or raise `FileError`."""
    target = file_path("path", path)
    try:
        with target.open("a", encoding="utf-8"):
            return target
    except OSError as error:
        raise FileError(f"cannot write {target}: {reason(error)}") from None


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield an empty scratch file that atomically replaces ``path``, or is removed on failure.

    Missing folders are created. The scratch file has the same ending, which may select a format. A
    replaced file keeps its mode, and a symbolic link its target. Raises `FileError` if the file
    cannot be written; an existing file is then unchanged.
    """
    target = file_path("path", path)
    _nearest_folder(target)
    scratch: Path | None = None
    try:
        _make_folders(target.parent)
        place = target.resolve()
        scratch = _open_scratch(place)
        yield scratch
        with suppress(FileNotFoundError):
            scratch.chmod(stat.S_IMODE(place.stat().st_mode))
        _sync(scratch)
        scratch.replace(place)
        sync_folder(place.parent)
        _sweep_stale(place)
    except OSError as error:
        raise FileError(f"cannot write {target}: {reason(error)}") from None
    finally:
        if scratch is not None:
            with suppress(OSError):
                scratch.unlink()


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file completely or not at all, synced to the disk; raises `FileError`."""
    with replacing(path) as scratch:
        scratch.write_bytes(data)


def make_folder(folder: Path) -> None:
    """Make a folder and check that files can be written into it, or raise `FileError`."""
    try:
        _make_folders(folder)
        _open_scratch(folder / "trial").unlink()
    except OSError as error:
        raise FileError(f"cannot write into {folder}: {reason(error)}") from None


def sweep(folder: Path, *older: str) -> None:
    """Remove half-written files of killed processes from a folder with no other writer.

    ``older`` are name patterns of such files from the first version.
    """
    for pattern in (f"{_SCRATCH}*", *older):
        for path in folder.glob(pattern):
            with suppress(OSError):
                path.unlink()


def _sweep_stale(place: Path) -> None:
    """Remove what killed processes left of a file long ago; other writers may be at work now."""
    ending, before = _ending(place), time.time() - _STALE
    with suppress(OSError):
        for entry in os.scandir(place.parent):
            name = entry.name
            if name.startswith(_SCRATCH) and name.endswith(ending):
                with suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_mtime < before:
                        Path(entry.path).unlink()


def _ending(place: Path) -> str:
    most = 255 - len(_SCRATCH) - 17  # file names are limited in bytes
    return "." + os.fsdecode(os.fsencode(place.name)[-most:])


def _open_scratch(place: Path) -> Path:
    """Make a new scratch file without following a link that already exists there.

    Where it is to replace a file, nobody else can read it before it has the mode of that file.
    """
    scratch = place.with_name(f"{_SCRATCH}{secrets.token_hex(8)}{_ending(place)}")
    mode = 0o600 if place.exists() else 0o666
    os.close(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
    return scratch


def _make_folders(folder: Path) -> None:
    """Make a folder and those above it, so that a power cut takes none of them back."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        sync_folder(each.parent)
    if not folder.is_dir():
        raise NotADirectoryError(20, "Not a directory")


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    with suppress(OSError):  # not every system can
        _sync(folder)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
