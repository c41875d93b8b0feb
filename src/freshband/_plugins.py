"""The user's own files: imported by path, and listed, so that other processes import them."""

from __future__ import annotations

import importlib.util
import json
import shlex
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from freshband.errors import FileError, FreshbandError, ParameterError, UnknownNameError

_imported: list[Path] = []


def imported_files() -> tuple[Path, ...]:
    """Return the files imported so far, absolute, in order."""
    return tuple(_imported)


def imports_to_keep() -> dict[str, str]:
    """Return the imported files as an attribute of results; empty if there are none."""
    return {"imported": json.dumps([str(path) for path in _imported])} if _imported else {}


@contextmanager
def made_with(source: object, kept: Mapping[str, Any]) -> Iterator[None]:
    """Add the files that were imported for ``source`` to an error about an unknown name.

    ``kept`` are the saved attributes of ``source``, which is None if nothing was saved.
    """
    try:
        yield
    except ParameterError as error:  # from a model's field: pydantic loses its class, not its text
        files = kept.get("imported", [])  # in a result's attributes as JSON
        files = json.loads(files) if isinstance(files, str) else files
        missing = [name for name in files if Path(name) not in _imported]
        if source is None or not str(error).startswith("unknown "):
            raise
        if not missing:
            raise UnknownNameError(
                f"{error} (if {source} uses your own code, import its file again: --import FILE.py)"
            ) from None
        told = " ".join(f"--import {shlex.quote(name)}" for name in missing)
        raise UnknownNameError(
            f"{source} was made with 'freshband {told}': use these options again ({error})"
        ) from None


def import_file(path: Path) -> None:
    """Import a user's file from any folder, once; raises `FileError` if that fails."""
    name, whole = path.stem, path.resolve()
    if whole in _imported:
        return
    if not path.is_file():
        raise FileError(f"cannot import {path}: no such file")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not name.isidentifier():
        raise FileError(f"cannot import {path}: not a Python file with the name of a module")
    taken = sys.modules[name].__spec__ if name in sys.modules else importlib.util.find_spec(name)
    if taken is not None and Path(taken.origin or "").resolve() != whole:
        raise FileError(f"cannot import {path}: there is a module {name!r} already, rename it")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # compiled states are looked up by their module's name
    try:
        spec.loader.exec_module(module)
    except FreshbandError:
        raise
    except Exception as error:
        del sys.modules[name]
        if isinstance(error, SyntaxError):
            where, line, text = error.filename, error.lineno, error.msg
        else:
            frames = traceback.extract_tb(error.__traceback__)
            own = [frame for frame in frames if Path(frame.filename) in (path, whole)]
            last = (own or frames)[-1]
            where, line, text = last.filename, last.lineno, str(error)
        raise FileError(
            f"cannot import {path}: {type(error).__name__} in {where}, line {line}: {text}"
        ) from None
    _imported.append(whole)
