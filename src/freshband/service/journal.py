"""A journal: lines that are on the disk before anybody is told of them.

Each line begins with a digest of itself and of the digest before it, so that a changed, missing or
moved line is found, but not that lines are missing at the end; with a secret key only those who
know it can write one. A line that a crash left unfinished was never acknowledged, and is cut off.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

from freshband._files import write_whole
from freshband.errors import FileError, accessing, reason

_DIGITS: Final = 32
_BINARY: Final = getattr(os, "O_BINARY", 0)  # Windows would change line ends


class Journal:
    """A file of JSON lines that only grows; see the module.

    Parameters
    ----------
    path : Path
        The file.
    key : bytes, optional
        A secret that seals the lines.
    """

    def __init__(self, path: Path, key: bytes | None = None) -> None:
        self.path: Final = path
        self._key = b"" if key is None else hashlib.sha256(key).digest()
        self._handle = -1
        self._last = b""
        self.size = self.lines = 0
        self.unsynced = self._doubtful = False

    def begin(self, first: bytes) -> None:
        """Replace the file, completely or not at all, by one with a single line."""
        line, digest = self._line(first, b"")
        self.close()
        write_whole(self.path, line)
        self._reach(len(line), 1, digest)

    def first(self) -> dict[str, Any]:
        """Return the first record and change nothing; raises `FileError`."""
        for text, _ in self._texts(self._data()):
            return cast(dict[str, Any], json.loads(text))
        raise FileError(f"{self.path} is damaged: it is empty")

    def read(self) -> list[dict[str, Any]]:
        """Return the records of the file, and go on after the last; raises `FileError`.

        They are durable then: a process that was killed, or failed, may not have synced the last.
        """
        self.close()
        data = self._data()
        whole = data[: data.rfind(b"\n") + 1]
        records, last = [], b""
        for text, digest in self._texts(whole):
            records.append(json.loads(text))
            last = digest
        if len(whole) < len(data):
            with accessing("write", self.path):
                os.truncate(self.path, len(whole))
        self._reach(len(whole), len(records), last)
        if self._doubtful:  # after a failed sync a second one may succeed without having written
            write_whole(self.path, whole)
            self._doubtful = False
        else:
            self._open()
            self.sync()
        return records

    def _data(self) -> bytes:
        with accessing("read", self.path):
            return self.path.read_bytes()

    def _open(self) -> None:
        if self._handle < 0:
            with accessing("write", self.path):
                self._handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | _BINARY)

    def _texts(self, whole: bytes) -> Iterator[tuple[bytes, bytes]]:
        last = b""
        for number, line in enumerate(whole.splitlines(keepends=True), start=1):
            text = line[_DIGITS + 1 : -1]
            expected, last = self._line(text, last)
            if line != expected:
                raise FileError(
                    f"{self.path} is damaged in line {number}, or sealed with another key"
                )
            yield text, last

    def append(self, text: bytes) -> None:
        """Write a line, completely or not at all; `sync` makes it durable. Raises `FileError`."""
        line, digest = self._line(text, self._last)
        self._open()
        try:
            if os.write(self._handle, line) != len(line):
                raise OSError(28, "No space left on device")
        except OSError as error:
            with suppress(OSError):
                os.truncate(self.path, self.size)
            raise FileError(f"cannot write {self.path}: {reason(error)}") from None
        self._reach(self.size + len(line), self.lines + 1, digest)
        self.unsynced = True

    def sync(self) -> None:
        """Wait until all lines are on the disk; raises `FileError`."""
        try:
            getattr(os, "fdatasync", os.fsync)(self._handle)
        except OSError as error:
            self._doubtful = True
            raise FileError(f"cannot write {self.path}: {reason(error)}") from None
        self.unsynced = False

    def close(self) -> None:
        """Close the file."""
        if self._handle >= 0:
            os.close(self._handle)
        self._handle, self.unsynced = -1, False

    def _line(self, text: bytes, last: bytes) -> tuple[bytes, bytes]:
        digest = hashlib.blake2b(last + text, key=self._key, digest_size=_DIGITS // 2)
        found = digest.hexdigest().encode()
        return found + b" " + text + b"\n", found

    def _reach(self, size: int, lines: int, last: bytes) -> None:
        self.size, self.lines, self._last = size, lines, last
