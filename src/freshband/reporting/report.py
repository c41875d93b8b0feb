"""A report: one self-contained HTML file that shows result files, without a network.

Examples
--------
>>> import freshband, tempfile
>>> from pathlib import Path
>>> folder = Path(tempfile.mkdtemp())
>>> result = freshband.simulate("stationary", "random,cucb", rounds=200, runs=3)
>>> freshband.save_result(result, folder / "mine.nc")
>>> write_report(folder).path.name
'report.html'
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from freshband._files import check_writable, replacing
from freshband.errors import FileError, FreshbandError, ParameterError
from freshband.parameters import file_path

if TYPE_CHECKING:
    from freshband.reporting._page.parts import Part


class _Written(NamedTuple):
    """A written report: its path, its contents, and why other files are left out."""

    path: Path
    shown: list[Path]
    left_out: list[str]
    pictures: list[Path]


def write_report(
    source: str | os.PathLike[str], out: str | os.PathLike[str] | None = None
) -> _Written:
    """Write a report of a result file, or of all files in a folder and its subfolders.

    Parameters
    ----------
    source : path
        A file that a command of freshband wrote, or a folder with such files: results of
        ``simulate``, ``train``, ``compare`` and ``reproduce``, verdicts, unfinished runs, pictures.
    out : path, optional
        The page to write; by default ``report.html`` in the folder.

    Raises
    ------
    FileError
        If there is no result to show, or the page cannot be written.
    FreshbandError
        If the extra ``report`` is not installed, or PyTorch, which results of training need.
    """
    try:
        from freshband.reporting._page.render import render_page
        from freshband.reporting._sources import name_result
    except ModuleNotFoundError as error:
        raise FreshbandError(
            f"a report needs {(error.name or '').partition('.')[0]}; install it with: "
            "pip install 'freshband[report]'"
        ) from None
    root = file_path("source", source)
    folder = root if root.is_dir() else root.parent
    target = check_writable(folder / "report.html" if out is None else out)
    if target.suffix.lower() not in (".html", ".htm"):
        raise ParameterError(f"the name of a report must end in .html, got {target.name!r}")
    parts, shown, left_out = _gather(root)  # slow, so it follows all checks
    if not parts:
        what = "no file *.nc, no run, no verdicts and no picture"
        raise FileError(left_out[0] if left_out else f"{root} holds no result: {what}")
    page = render_page(name_result(root, root), parts, left_out)
    with replacing(target) as scratch:
        scratch.write_text(page, encoding="utf-8", newline="\n")
    pictures = [picture.path for part in parts for picture in part.pictures]
    return _Written(target, shown, left_out, pictures)


def _gather(root: Path) -> tuple[list[Part], list[Path], list[str]]:
    """Return the parts of the page, the results they show, and why others are left out."""
    from freshband.reporting._page.pictures import load_picture, show_pictures
    from freshband.reporting._sources import find_pictures, find_results, name_result, show_result

    parts, shown, left_out = [], [], []
    for path in find_results(root):
        try:
            parts.append(show_result(path, name_result(path, root)))
            shown.append(path)
        except FileError as error:
            left_out.append(str(error))
    known = {picture.path for part in parts for picture in part.pictures}
    loose = []
    for path in find_pictures(root):
        if path not in known:
            try:
                loose.append(load_picture(path, name_result(path, root)))
            except FileError as error:
                left_out.append(str(error))
    return [*parts, *([show_pictures(loose)] if loose else [])], shown, left_out
