"""Files made by somebody else: refused with one line, or harmless.

The programs are those behind the page on reliability, in their short form.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from freshband import Coordinator, _packed
from freshband.errors import FileError, ParameterError
from tests.coordinating import started

ROOT = Path(__file__).parents[1]


def run_program(name: str, *arguments: str) -> str:
    """Return what a program of `benchmarks.reliability` prints; it must find nothing."""
    command = [sys.executable, "-m", f"benchmarks.reliability.{name}", *arguments]
    paths = os.pathsep.join([str(ROOT), *sys.path])
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_crafted_coordinators_are_refused_or_play_on() -> None:
    said = run_program("crafted", "--files", "160", "--rounds", "6")
    assert "refused" in said
    assert "played on" in said


def test_a_sealed_file_needs_its_key(tmp_path: Path) -> None:
    coordinator, path = started(), tmp_path / "sealed"
    coordinator.save(path, key=b"secret")
    again = Coordinator.load(path, key=b"secret")
    assert again.to_bytes() == coordinator.to_bytes()
    with pytest.raises(FileError, match="is sealed: give the key"):
        Coordinator.load(path)
    with pytest.raises(FileError, match="checksum does not match"):
        Coordinator.load(path, key=b"another")
    coordinator.save(path)
    with pytest.raises(FileError, match="is not sealed"):
        Coordinator.load(path, key=b"secret")
    for bad in (b"", "secret", bytearray(b"x")):
        with pytest.raises(ParameterError, match="key must be bytes"):
            coordinator.save(path, key=bad)  # type: ignore[arg-type]


def test_a_small_file_that_asks_for_much_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_packed, "_MUCH", 1 << 16)
    arrays = {"members": np.zeros(1 << 23, np.int8)}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    with pytest.raises(FileError, match="damaged or not"):
        Coordinator.from_bytes(buffer.getvalue())
    ours = _packed.pack("freshband test 1", {}, arrays)  # large: not compressed
    _, again = _packed.unpack("freshband test 1", ours, "it")
    assert again["members"].nbytes == 1 << 23
