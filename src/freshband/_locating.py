"""Files named in settings: found from any folder, and found again after folders have moved."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_FILES: Final = ("path", "data_dir")  # options of channels and data sets that are paths


def absolute(value: object) -> object:
    """Return the absolute path of an existing file or folder; any other value as it is."""
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str) or not text or not _is_there(Path(text)):
        return text
    return os.path.normpath(Path(text).absolute())


def with_absolute_files(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options in which existing files are named by absolute paths."""
    return {key: absolute(value) if key in _FILES else value for key, value in options.items()}


def find_again(options: Mapping[str, Any], folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Return options with missing files looked for near a result, and notes on those found.

    A missing file is looked for in the result's folder and the one above, under the saved relative
    path or its bare name. An option whose file is not found stays as it is.
    """
    found, notes = dict(options), []
    for key in _FILES:
        value = options.get(key)
        if not isinstance(value, str) or not value or _is_there(Path(value)):
            continue
        old, home = Path(value), Path(os.path.normpath(folder.absolute()))
        names = [Path(old.name)] if old.is_absolute() else [old, Path(old.name)]
        near = [place / name for place in (home, home.parent) for name in names]
        there = next((each for each in near if _is_there(each)), None)
        if there is not None:
            found[key] = str(there)
            notes.append(f"{value} is missing, {there} is used instead")
    return found, notes


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name no file can have
        return False
