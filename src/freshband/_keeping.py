"""Runs of a long command, kept one by one until its result is written.

A command that was interrupted, called again, computes only the runs that are missing. A run that is
damaged, or was made with other settings or versions, is computed again.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray

from freshband._files import make_folder, sweep, write_whole
from freshband._packed import pack, unpack
from freshband.errors import FileError
from freshband.parameters import file_path

_FORMAT: Final = "freshband run 1"


class KeptRuns:
    """A folder beside the file of a result, ``RESULT.runs``, with a file for each run.

    A run has a number, or a name in which a file name may hold all letters.

    ``config`` is everything that decides what a run gives, as JSON values. Without a path nothing
    is kept.
    """

    def __init__(self, path: str | os.PathLike[str] | None, config: Mapping[str, Any]) -> None:
        self.folder: Path | None = None
        self._config = json.loads(json.dumps(dict(config)))
        if path is not None:
            out = file_path("keep", path)
            self.folder = out.with_name(f"{out.name}.runs")
            make_folder(self.folder)
            sweep(self.folder)

    def load(self, run: int | str) -> dict[str, NDArray[Any]] | None:
        """Return the arrays of a run, or None where it has to be computed."""
        if self.folder is None:
            return None
        path = self._path(run)
        try:
            header, arrays = unpack(_FORMAT, path.read_bytes(), str(path))
        except (OSError, FileError):
            return None
        return arrays if header["config"] == self._config and header["run"] == run else None

    def save(self, run: int | str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Keep the arrays of a run."""
        if self.folder is not None:
            header = {"config": self._config, "run": run}
            write_whole(self._path(run), pack(_FORMAT, header, arrays))

    def _path(self, run: int | str) -> Path:
        assert self.folder is not None
        name = run if isinstance(run, str) else f"{run:06d}"
        return self.folder / f"run-{name}.npz"


def forget_runs(path: Path) -> None:
    """Remove the runs kept for a result, which is written now."""
    shutil.rmtree(path.with_name(f"{path.name}.runs"), ignore_errors=True)


def count_runs(path: Path) -> int:
    """Return how many runs are kept for a result."""
    return len(list(path.with_name(f"{path.name}.runs").glob("run-*.npz")))
