"""Archives from the web: fetched once, checked by checksum, unpacked file by file."""

from __future__ import annotations

import importlib
import logging
import os
import shutil
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from freshband._files import replacing
from freshband.errors import FileError

_CHUNK = 1 << 18  # bytes per step: with pooch's own 1 KiB most of the time is spent on flushing


class Archive(NamedTuple):
    """A compressed tar archive, what to check it by, and the files we need of it."""

    url: str
    checksum: str  # algorithm and digest, such as "sha256:0123…"; nothing else is ever unpacked
    folder: str  # of the files in the archive, and of the copies in the cache
    sizes: Mapping[str, int]  # in bytes, by the names of the files


def cache_folder() -> Path:
    """Return where downloads are kept: ``FRESHBAND_CACHE``, or the system's cache folder."""
    chosen = os.environ.get("FRESHBAND_CACHE")
    return Path(chosen).absolute() if chosen else Path(_pooch().os_cache("freshband"))


def fetch(archive: Archive, cache: Path, console: Console | None = None) -> Path:
    """Return the folder with the archive's files, downloading them if they are not there yet.

    Files are renamed when they are complete, so an interrupted call leaves nothing that looks
    finished, and the next one goes on. The archive is removed once unpacked. Where the network, the
    disk or the checksum fails, the error says what to do by hand.
    """
    folder = cache / archive.folder
    if _is_complete(archive, folder):
        return folder
    packed = _download(archive, cache, console or Console(stderr=True))
    try:
        _unpack(packed, archive, folder)
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        if _is_complete(archive, folder):  # by another process, which took the archive away
            return folder
        if isinstance(error, FileError):
            raise
        raise FileError(f"{packed}: cannot be unpacked into {folder}: {error}") from None
    packed.unlink(missing_ok=True)
    return folder


def _download(archive: Archive, cache: Path, console: Console) -> Path:
    """Fetch the archive itself; one that is there with the right checksum is not fetched again."""
    pooch = _pooch()
    name = archive.url.rpartition("/")[2]
    pooch.get_logger().setLevel(logging.WARNING)  # the bar shows the same
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn()
    speed = TransferSpeedColumn(), TimeRemainingColumn()
    try:
        with Progress(*columns, *speed, console=console) as progress:
            downloader = pooch.HTTPDownloader(
                progressbar=_Bar(progress, name), chunk_size=_CHUNK, timeout=60
            )
            found = pooch.retrieve(
                archive.url, archive.checksum, name, path=cache, downloader=downloader
            )
    except (OSError, ValueError) as error:  # requests' errors are OSErrors, a bad checksum a value
        reason = " ".join(str(error).split())
        raise FileError(
            f"{archive.url}: cannot be downloaded to {cache}: {reason}; get it by other means, "
            f"unpack it and name the folder as data_dir"
        ) from None
    return Path(found)


def _unpack(packed: Path, archive: Archive, folder: Path) -> None:
    """Copy the wanted files, and nothing else, out of a checked archive."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(packed, "r:gz") as tar:
        for member in tar:
            name = Path(member.name).name
            if member.name.removeprefix("./") != f"{archive.folder}/{name}":
                continue
            source = tar.extractfile(member) if member.isfile() else None
            if name not in archive.sizes or source is None:
                continue
            with replacing(folder / name) as scratch, source, scratch.open("wb") as target:
                shutil.copyfileobj(source, target)
    for name, size in archive.sizes.items():
        if not _has_size(folder / name, size):
            raise FileError(f"{packed}: should hold {archive.folder}/{name} of {size:,} bytes")


class _Bar:
    """What pooch expects of a progress bar, drawn by rich."""

    def __init__(self, progress: Progress, name: str) -> None:
        self._progress = progress
        self._task = progress.add_task(name, total=None)

    @property
    def total(self) -> float | None:
        return self._progress.tasks[self._task].total

    @total.setter
    def total(self, size: int) -> None:
        self._progress.update(self._task, total=size or None)

    def update(self, step: int) -> None:
        self._progress.advance(self._task, step)

    def reset(self) -> None:
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        self._progress.stop_task(self._task)


def _is_complete(archive: Archive, folder: Path) -> bool:
    return all(_has_size(folder / name, size) for name, size in archive.sizes.items())


def _has_size(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


def _pooch() -> Any:
    try:
        return importlib.import_module("pooch")
    except ImportError:
        raise FileError(
            "downloads need pooch; install it with: pip install 'freshband[train]'"
        ) from None
