"""Pictures that commands drew, shown on the page unchanged."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from freshband.errors import FileError, accessing
from freshband.reporting._page.parts import Part, Picture

_SHOWN: Final = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "svg": "image/svg+xml",
    "webp": "image/webp",
}  # formats that browsers show
DRAWN: Final = (*_SHOWN, "pdf", "eps", "tif")
_LARGEST: Final = 8_000_000  # bytes; figures are much smaller


def load_picture(path: Path, says: str) -> Picture:
    """Return a picture for the page, or raise `FileError` if a page cannot show it."""
    kind = _SHOWN.get(path.suffix[1:].lower())
    if kind is None:
        raise FileError(
            f"{path} is a picture that a page cannot show: open it separately, or write it as "
            f"{', '.join(_SHOWN)}"
        )
    with accessing("read", path):
        data = path.read_bytes()
    if len(data) > _LARGEST:
        raise FileError(f"{path} is too large for a page: {len(data) / 1e6:.0f} MB")
    return Picture(path, says, f"data:{kind};base64,{base64.b64encode(data).decode()}")


def show_pictures(pictures: Sequence[Picture]) -> Part:
    """Return the part of the page with pictures that belong to no other."""
    return Part(
        kind="Picture",
        title="Pictures",
        about="Drawn by 'freshband show' and the option --plot.",
        pictures=list(pictures),
    )
