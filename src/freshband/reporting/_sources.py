"""The files that a report shows, and the part of the page for each."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Final

from freshband._sealed import complete, load_sealed
from freshband.errors import FreshbandError, accessing
from freshband.reporting._page.parts import Part
from freshband.reporting._page.pictures import DRAWN
from freshband.reporting._page.verdicts import is_verdict_name, show_json

_HDF5: Final = b"\x89HDF\r\n\x1a\n"  # the first bytes of every result, whatever its file name
_RUN: Final = "run.json"
_PAGES: Final = {
    "freshband simulation 1": "simulation",
    "freshband training 1": "training",
    "freshband comparison 1": "comparison",
    "freshband arena 1": "arena",
}  # the module of freshband.reporting._page that shows a result, by its format


def find_results(root: Path) -> list[Path]:
    """Return files that may be results; verdicts come first, because they summarise the others.

    Hidden files are left out, because they are still being written. ``run.json`` represents the
    last checkpoint of an unfinished run.
    """
    if not root.is_dir():
        return [] if _is_picture(root) else [root]
    found = [path for path in _files(root) if _is_result(path)]
    return sorted(found, key=lambda path: (not is_verdict_name(path.name), path))


def find_pictures(root: Path) -> list[Path]:
    """Return the pictures in a folder and the folders in it."""
    return [path for path in (_files(root) if root.is_dir() else [root]) if _is_picture(path)]


def _files(root: Path) -> list[Path]:
    with accessing("read", root):
        found = [*root.glob("[!.]*"), *root.glob("[!.]*/[!.]*")]
        return sorted(path for path in found if path.is_file())


def _is_picture(path: Path) -> bool:
    return path.suffix[1:].lower() in DRAWN


def _is_result(path: Path) -> bool:
    if path.name == _RUN:
        finished = path.with_name("result.nc").exists()
        return not finished and path.with_name("checkpoints").is_dir()
    return path.suffix == ".nc" or is_verdict_name(path.name) or _is_hdf5(path)


def _is_hdf5(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_HDF5)) == _HDF5
    except OSError:
        return False  # an unreadable file need not be a result


def name_result(path: Path, root: Path) -> str:
    """Return the title of a file: its path below the folder, or the folder of a run."""
    resolved = path.resolve()
    is_run = path.name in ("result.nc", _RUN)
    if path == root:
        return resolved.parent.name if is_run else resolved.name if root.is_dir() else resolved.stem
    below = path.relative_to(root)
    if is_run:
        return below.parent.as_posix() if len(below.parts) > 1 else resolved.parent.name
    return below.with_suffix("").as_posix() if below.suffix in (".nc", ".json") else str(below)


def show_result(path: Path, title: str) -> Part:
    """Return the part of the page on a file, or raise `FreshbandError` if it cannot be read."""
    try:
        with complete(path):
            if path.name == _RUN:
                from freshband.federated.runs import _read_rounds

                result = _read_rounds(path.parent)
            elif path.suffix == ".json":
                return show_json(path, title)
            else:
                result = load_sealed(path, *_PAGES)
            name = _PAGES[result.attrs["format"]]
            page = importlib.import_module(f"freshband.reporting._page.{name}")
            part: Part = getattr(page, f"show_{name}")(result, path, title)
            for chart in part.charts:  # one that the page cannot hold would cost all others
                json.dumps(chart.to_json(), allow_nan=False)
            return part
    except ModuleNotFoundError:
        raise FreshbandError(
            f"{path} is a result of training, and reading it needs PyTorch; install it with: "
            "pip install 'freshband[train]'"
        ) from None
