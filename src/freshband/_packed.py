"""Arrays in one NPZ file, with a JSON header and a checksum; nothing is pickled."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from freshband.errors import FileError, shown

Arrays = Mapping[str, NDArray[Any]]


def pack(form: str, header: Mapping[str, Any], arrays: Arrays) -> bytes:
    """Return a file of the format named ``form``: a header of JSON values, and arrays by name."""
    text = json.dumps({"format": form, **header}, sort_keys=True)
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        allow_pickle=False,
        header=np.array(text),
        checksum=np.array(checksum(text, arrays)),
        **arrays,
    )
    return buffer.getvalue()


def unpack(
    form: str, data: bytes, source: str, *, older: Sequence[str] = ()
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return header and arrays of what `pack` returned, or raise `FileError` about ``source``.

    ``older`` are formats that are read as well; the header says which one it is.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        text, expected = str(arrays.pop("header")), str(arrays.pop("checksum"))
        header: dict[str, Any] = json.loads(text)
        found = header["format"]
    except Exception:  # archive readers may raise any exception
        raise FileError(f"{source} is damaged or not a {form.split()[-2]}'s file") from None
    if found not in (form, *older):
        raise FileError(f"{source} must have the format {form!r}, got {shown(found)}")
    if checksum(text, arrays) != expected:
        raise FileError(f"{source} is damaged: its checksum does not match")
    return header, arrays


def checksum(header: str, arrays: Arrays) -> str:
    """Return a digest of a header and of every array's name, type, shape and bytes."""
    digest = hashlib.sha256(header.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
