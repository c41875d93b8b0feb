"""Recordings in every format that can be read."""

from __future__ import annotations

from pathlib import Path

import pytest

every_format = pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".npy", ".npz", ".parquet"])


def write(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path
