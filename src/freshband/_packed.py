"""Arrays in one NPZ file, with a JSON header and a checksum; nothing is pickled.

The checksum shows damage. With a secret key it is an HMAC: then it also shows that the file comes
from somebody who knows the key.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from freshband._parsing import parse_json
from freshband.errors import FileError, ParameterError, shown

Arrays = Mapping[str, NDArray[Any]]
MUCH: Final = 1 << 30  # bytes; larger arrays are written as they are, so that a small file that
_RATIO: Final = 100  # asks for more than that is not ours
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def pack(form: str, header: Mapping[str, Any], arrays: Arrays, key: bytes | None = None) -> bytes:
    """Return a file of the format named ``form``: a header of JSON values, and arrays by name."""
    text = json.dumps({"format": form, "sealed": key is not None, **header}, sort_keys=True)
    buffer = io.BytesIO()
    large = sum(array.nbytes for array in arrays.values()) > MUCH
    write = np.savez if large else np.savez_compressed
    write(
        buffer,
        allow_pickle=False,
        header=np.array(text),
        checksum=np.array(checksum(text, arrays, key)),
        **arrays,
    )
    return buffer.getvalue()


def unpack(
    form: str,
    data: bytes,
    source: str,
    *,
    older: Sequence[str] = (),
    key: bytes | None = None,
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return header and arrays of what `pack` returned, or raise `FileError` about ``source``.

    ``older`` are formats that are read as well; the header says which one it is.
    """
    try:
        check_archive(io.BytesIO(data), len(data), MUCH + (1 << 20))
        with np.load(io.BytesIO(data), allow_pickle=False) as files:
            arrays = {name: files[name] for name in files.files}
        text, expected = str(arrays.pop("header")), str(arrays.pop("checksum"))
        header: dict[str, Any] = parse_json(text)
        found, sealed = header["format"], header.get("sealed", False)
    except Exception:  # archive readers may raise any exception
        raise FileError(f"{source} is damaged or not a {form.split()[-2]}'s file") from None
    if found not in (form, *older):
        raise FileError(f"{source} must have the format {form!r}, got {shown(found)}")
    if sealed is not (key is not None):
        raise FileError(
            f"{source} is sealed: give the key it was saved with"
            if sealed
            else f"{source} is not sealed: it was saved without a key"
        )
    if not hmac.compare_digest(checksum(text, arrays, key), expected):
        raise FileError(f"{source} is damaged: its checksum does not match")
    return header, arrays


def check_archive(file: BinaryIO | Path, size: int, much: int) -> None:
    """Raise ValueError if an archive asks for over ``much`` bytes and far more than its size.

    Of the methods of compression only NumPy's is accepted: `zipfile` unpacks the others without
    regard to the size that the archive names.
    """
    with zipfile.ZipFile(file) as archive:
        parts = archive.infolist()
    if any(part.compress_type not in _METHODS for part in parts):
        raise ValueError("it must be uncompressed or compressed by NumPy (deflate)")
    check_unpacked(sum(part.file_size for part in parts), size, much)


def check_unpacked(asked: int, size: int, much: int) -> None:
    """Raise ValueError if ``size`` bytes ask for more than ``much``, and far more than they are."""
    if asked > max(much, _RATIO * size):
        raise ValueError(
            f"{size} bytes must not unpack to {asked}; save it uncompressed, if it is yours"
        )


def checksum(header: str, arrays: Arrays, key: bytes | None = None) -> str:
    """Return a digest of a header and of every array's name, type, shape and bytes."""
    if key is not None and not (isinstance(key, bytes) and key):
        raise ParameterError(f"key must be bytes, got {type(key).__name__} of length {len(key)}")
    digest = hashlib.sha256() if key is None else hmac.new(key, digestmod=hashlib.sha256)
    digest.update(header.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
