"""The log of a coordinator: a JSON line per observation, whole and each once."""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from freshband._files import check_appendable, sync_folder, write_whole
from freshband.errors import FileError, reason
from freshband.parameters import file_path, whole_number

__all__ = ["Log"]

_LARGE: Final = 1 << 26  # bytes


class Log:
    """A file to which a coordinator appends a line per observation.

    A line is written before anything is learnt, completely or not at all: where the disk is full,
    nothing is learnt. A line that a crash left unfinished is cut off when the file is opened again.

    Parameters
    ----------
    path : path
        The file; a symbolic link is followed, and other files are beside its target.
    max_bytes : int >= 1, default 64 MiB
        The size from which the file is renamed to ``PATH.1``, in place of an earlier one, and a new
        one begun.

    Examples
    --------
    >>> import tempfile
    >>> from freshband import Coordinator
    >>> log = Log(tempfile.mkdtemp() + "/decisions.jsonl", max_bytes=1 << 20)
    >>> coordinator = Coordinator("cucb", 1, 1, log=log)
    >>> _ = coordinator.plan()
    >>> coordinator.observe([True])
    >>> print(log.path.read_text().strip())
    {"line": 1, "round": 1, "assignment": [0], "outcome": [1], "alarm": null}
    """

    def __init__(self, path: str | os.PathLike[str], max_bytes: int = _LARGE) -> None:
        given = check_appendable(file_path("log", path))
        self.path: Final = given.resolve() if given.is_symlink() else given  # a link stays one
        self.max_bytes: Final = whole_number("max_bytes", max_bytes, at_least=1)
        if self.path.is_file():
            self._cut_off()

    @classmethod
    def of(cls, log: str | os.PathLike[str] | Log) -> Log:
        """Return the log that a user gave, or one at the path given."""
        return log if isinstance(log, Log) else cls(log)

    def write(self, entry: dict[str, Any], largest: int = 0) -> int:
        """Append an entry whose ``alarm`` is not known yet; return where it begins.

        Room for an alarm up to ``largest`` is left before the closing brace.
        """
        room = max(0, len(str(largest)) - len("null"))
        line = json.dumps({**entry, "alarm": None}).encode()[:-1] + b" " * room + b"}\n"
        try:
            if self.path.is_file() and self.path.stat().st_size >= self.max_bytes:
                self._rotate()
            with self.path.open("ab", buffering=0) as file:
                before = file.seek(0, os.SEEK_END)
                try:
                    done = file.write(line)
                    if done != len(line):
                        raise OSError(28, "No space left on device")
                except OSError:
                    with suppress(OSError):  # a device cannot be cut
                        file.truncate(before)
                    raise
                return before
        except OSError as error:
            raise FileError(f"cannot write {self.path}: {reason(error)}") from None

    def tell_alarm(self, place: int, entry: dict[str, Any], alarm: int) -> None:
        """Write the alarm over the ``null`` of an entry, which needs no room on the disk."""
        head = json.dumps({**entry, "alarm": None}).encode()[: -len(b"null}")]
        with suppress(OSError), self.path.open("r+b") as file:  # the entry itself is there
            file.seek(place + len(head))
            file.write(f"{alarm:<4d}".encode())

    def sync(self) -> None:
        """Make what was written durable, and the file's name."""
        with suppress(OSError), self.path.open("rb") as file:
            os.fsync(file.fileno())
            sync_folder(self.path.parent)

    def rewind(self, lines: int) -> None:
        """Take out lines after the given one, of rounds that a restored coordinator plays again.

        They go to ``PATH.cut``. Those of ``PATH.1`` are taken out too.
        """
        files: dict[Path, list[bytes]] = {}
        cut: list[bytes] = []
        for path in (self._earlier, self.path):
            if path.is_file():
                read = path.read_bytes().splitlines(keepends=True)
                kept = [line for line in read if _number(line) <= lines]
                if len(kept) < len(read):
                    files[path] = kept
                    cut += [line for line in read if _number(line) > lines]
        if cut:
            write_whole(self.path.with_name(f"{self.path.name}.cut"), b"".join(cut))
        for path, kept in files.items():
            write_whole(path, b"".join(kept))

    def _rotate(self) -> None:
        """Begin a new file, of the same mode."""
        self.sync()
        mode = stat.S_IMODE(self.path.stat().st_mode)
        self.path.replace(self._earlier)
        self.path.touch(0o600)
        self.path.chmod(mode)

    @property
    def _earlier(self) -> Path:
        return self.path.with_name(f"{self.path.name}.1")

    def _cut_off(self) -> None:
        """Remove an unfinished line at the end."""
        try:
            with self.path.open("r+b") as file:
                end = size = file.seek(0, os.SEEK_END)
                while end > 0:
                    begin = max(0, end - 65536)
                    file.seek(begin)
                    newline = file.read(end - begin).rfind(b"\n")
                    end = begin + newline + 1
                    if newline >= 0:
                        break
                if end < size:
                    file.truncate(end)
        except OSError as error:
            raise FileError(f"cannot write {self.path}: {reason(error)}") from None


def _number(line: bytes) -> int:
    """Return the number of a line; 0 for those of earlier versions."""
    try:
        return int(json.loads(line).get("line", 0))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return 0
