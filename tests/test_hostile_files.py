"""Files and values made by somebody else: refused with one line, or harmless."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import numpy as np
import pytest

from freshband import Coordinator, _packed
from freshband.errors import FileError, ParameterError
from tests.coordinating import started


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


@pytest.mark.parametrize("bad", [["1", "1"], [b"1", b"1"], [True, False], [1j, 1], [None, 1]])
def test_contributions_are_numbers(bad: object) -> None:
    coordinator = Coordinator("cucb+priority", 2, 3)
    with pytest.raises(ParameterError, match="contributions must be 2 finite numbers >= 0"):
        coordinator.plan(bad)  # type: ignore[arg-type]


def test_what_was_accepted_can_be_read_back() -> None:
    """Numbers that a file may not hold are refused before anything is planned with them."""
    coordinator = Coordinator("cucb+priority", 2, 3, weights=[1e-150, 1e150])
    with pytest.raises(ParameterError, match=r"contributions must be at most 1e\+300, got"):
        coordinator.plan([1e305, 1])
    coordinator.plan([1e300, 0])
    with pytest.raises(ParameterError, match=r"weight must be from 1e-150 to 1e\+150, got 1e-200"):
        coordinator.join("new", weight=1e-200)
    data = coordinator.to_bytes()
    assert Coordinator.from_bytes(data).to_bytes() == data


def read_trace(path: Path) -> None:
    from freshband.channels._reading import read

    read(str(path), None, None, None)


def header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@pytest.mark.parametrize(
    "text",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (3,",  # TokenError
        "{'descr': '<f8', 'fortran_order': False, 'shape': ((",
        "{'descr': [('a', '<f8', 1 << 40)], 'fortran_order': False, 'shape': (1,)}",
        "{'descr': 'O', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1 << 60,)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1152921504606846976,)}",
        "\x00" * 100,
    ],
)
def test_headers_of_arrays_made_by_somebody_else(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(header(text))
    with pytest.raises(FileError, match=r"x\.npy: cannot be read") as caught:
        read_trace(path)
    assert "\n" not in str(caught.value)


def test_a_recording_that_unpacks_to_far_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from freshband.channels import _reading

    monkeypatch.setattr(_packed, "_MUCH", 1 << 16)
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros((1 << 11, 1 << 11)))
    with pytest.raises(FileError, match=r"x\.npz: cannot be read: \d+ bytes must not unpack to"):
        read_trace(tmp_path / "x.npz")
    monkeypatch.setattr(_reading, "_UNPACKED", 1 << 12)
    with gzip.open(tmp_path / "x.csv.gz", "wb") as file:
        file.write(b"1,0,1\n" * 100_000)
    with pytest.raises(FileError, match="unpacks to far more than its size"):
        read_trace(tmp_path / "x.csv.gz")


def test_settings_nested_beyond_reason(tmp_path: Path) -> None:
    from freshband.cli._settings import read_setting
    from freshband.cli._training import read_file

    for text in ("[" * 20 + "]" * 20, "[" * 100_000):
        with pytest.raises(ParameterError, match="must not be nested so deeply"):
            read_setting(f"x={text}", "key=value")
    (tmp_path / "x.toml").write_text("x = " + "[" * 5000 + "]" * 5000)
    with pytest.raises(FileError, match=r"nested too deeply|is not TOML"):
        read_file(tmp_path / "x.toml")
