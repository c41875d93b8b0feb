"""A file that one process at a time may hold."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from freshband.errors import FileError, accessing


class Exclusive:
    """A lock file, held until `release` or the end of the process; raises `FileError`."""

    def __init__(self, path: Path, what: Path) -> None:
        with accessing("write", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(self._handle)
        except OSError:
            os.close(self._handle)
            raise FileError(f"{what} is served by another process") from None

    def release(self) -> None:
        """Let others hold it."""
        os.close(self._handle)


def _lock(handle: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
