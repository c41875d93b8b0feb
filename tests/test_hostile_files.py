"""Files and values made by somebody else: refused with one line, or harmless."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import struct
import tomllib
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from freshband import Coordinator, _packed
from freshband.errors import FileError, ParameterError
from freshband.fleet import _saving
from freshband.fleet.options import Links
from freshband.schedulers.base import registry
from tests.coordinating import started

LEARNING = [name for name in registry if not registry[name].sees_channels]


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
    monkeypatch.setattr(_packed, "MUCH", 1 << 16)
    arrays = {"members": np.zeros(1 << 23, np.int8)}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    with pytest.raises(FileError, match="damaged or not"):
        Coordinator.from_bytes(buffer.getvalue())
    ours = _packed.pack("freshband test 1", {}, arrays)  # large: not compressed
    _, again = _packed.unpack("freshband test 1", ours, "it")
    assert again["members"].nbytes == 1 << 23


def crafted(zeros: int = 0, **changes: Any) -> bytes:
    """Return a coordinator's file with another header or more zeros, and a checksum that fits."""
    header, arrays = _packed.unpack("freshband coordinator 2", started().to_bytes(), "it")
    more = {"members": np.zeros(zeros, np.int8)} if zeros else {}
    return _packed.pack(header.pop("format"), {**header, **changes}, {**arrays, **more})


def test_a_file_gives_no_arguments_but_its_own(tmp_path: Path) -> None:
    """A fleet's options once became arguments of any name: a log, to be cut and written to."""
    path = tmp_path / "notes"
    path.write_text("a line\nno newline")
    for name, value in {"log": str(path), "warm_up": True, "scheduler": "cucb"}.items():
        with pytest.raises(FileError, match=f"a fleet has no option '{name}'"):
            Coordinator.from_bytes(crafted(fleet={"max_delay": 100, name: value}))
    assert path.read_text() == "a line\nno newline"


@pytest.mark.parametrize(
    "sizes",
    [
        {"n_channels": 10**6},
        {"n_clients": 10**6, "n_channels": 10**6},
        {"n_clients": 200, "n_channels": 200, "fleet": {"links": "differ"}},
        {"n_clients": 190, "n_channels": 190, "fleet": {"max_delay": 100_000}},
        {"n_channels": 10**6, "zeros": 10**6},  # 17 kB took 17 s and 3.5 GB
        {"n_clients": 10**6, "zeros": 10**6, "fleet": {"max_transmissions": 1}},
        {"n_clients": 1000, "n_channels": 1000, "fleet": {"links": "differ"}, "zeros": 10**6},
        {"n_clients": 900, "n_channels": 900, "fleet": {"max_delay": 100_000}, "zeros": 10**6},
    ],
)
def test_a_problem_far_larger_than_its_file(sizes: dict[str, Any]) -> None:
    with pytest.raises(FileError, match=r"it holds \d+ numbers, too few for"):
        Coordinator.from_bytes(crafted(policy="bayes", options={}, **sizes))


@pytest.mark.parametrize("policy", LEARNING)
def test_no_file_of_ours_is_taken_for_one_that_is_too_small(policy: str) -> None:
    links: list[Links] = ["shared", "differ"] if policy == "bayes" else ["shared"]
    for n_clients, n_channels in ((40, 60), (60, 40), (1, 1), (3, 50)):
        for kind in links:
            coordinator = Coordinator(policy, n_clients, n_channels, links=kind)
            header, arrays = _packed.unpack("freshband coordinator 2", coordinator.to_bytes(), "it")
            usual = _saving._usual_bytes(Coordinator, header, n_clients, n_channels)
            held = sum(array.nbytes for array in arrays.values())
            assert 0 < usual < 2 * held  # eight times would be refused


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

    monkeypatch.setattr(_reading, "_ARRAYS", 1 << 16)
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros((1 << 11, 1 << 11)))
    with pytest.raises(FileError, match=r"x\.npz: cannot be read: \d+ bytes must not unpack to"):
        read_trace(tmp_path / "x.npz")
    monkeypatch.setattr(_reading, "_UNPACKED", 1 << 12)
    with gzip.open(tmp_path / "x.csv.gz", "wb") as file:
        file.write(b"1,0,1\n" * 100_000)
    with pytest.raises(FileError, match="unpacks to far more than its size"):
        read_trace(tmp_path / "x.csv.gz")


def archive_of(unpacked: int, named: int) -> bytes:
    """Return an archive that unpacks to more than it names, with the method bzip2."""
    head = io.BytesIO()
    shape = {"descr": "|u1", "fortran_order": False, "shape": (named,)}
    np.lib.format.write_array_header_1_0(head, shape)
    data = bz2.compress(head.getvalue() + bytes(unpacked))
    size, name = len(head.getvalue()) + named, b"x.npy"
    about = struct.pack("<5H3LH", 46, 0, zipfile.ZIP_BZIP2, 0, 33, 0, len(data), size, len(name))
    local = b"PK\3\4" + about + bytes(2) + name + data
    middle = b"PK\1\2" + struct.pack("<H", 46) + about + bytes(16) + name
    end = struct.pack("<4H2LH", 0, 0, 1, 1, len(middle), len(local), 0)
    return local + middle + b"PK\5\6" + end


def test_an_archive_that_names_too_small_a_size(tmp_path: Path) -> None:
    """Python unpacks what bzip2 and LZMA packed without regard to the size."""
    path = tmp_path / "x.npz"
    path.write_bytes(archive_of(1 << 26, 1 << 10))
    tracemalloc.start()
    try:
        with pytest.raises(FileError, match=r"x\.npz: cannot be read: it must be uncompressed or"):
            read_trace(path)
        with pytest.raises(FileError, match="is damaged or not a coordinator's file"):
            Coordinator.load(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("line", [b"\n", b"#\n", b"1,0\n", b",\n"])
def test_a_small_compressed_text_of_many_lines(line: bytes, tmp_path: Path) -> None:
    """It is the number of lines that takes time: 144 kB of empty ones took a minute."""
    with gzip.open(tmp_path / "x.csv.gz", "wb") as file:
        file.write(line * ((1 << 23) // len(line)))
    with pytest.raises(FileError, match="unpacks to far more than its size"):
        read_trace(tmp_path / "x.csv.gz")


def test_settings_nested_beyond_reason(tmp_path: Path) -> None:
    from freshband.cli._settings import read_setting
    from freshband.cli._training import read_file

    for text in ("[" * 20 + "]" * 20, "[" * 100_000):
        with pytest.raises(ParameterError, match="must not be nested so deeply"):
            read_setting(f"x={text}", "key=value")
    (tmp_path / "x.toml").write_text("x = " + "[" * 5000 + "]" * 5000)
    with pytest.raises(FileError, match="nested too deeply"):
        read_file(tmp_path / "x.toml")


def test_a_bomb_under_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy reads an archive whatever it is called; a text may be one endless line."""
    from freshband.channels import _reading

    monkeypatch.setattr(_reading, "_ARRAYS", 1 << 16)
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros((1 << 11, 1 << 11)))
    (tmp_path / "x.npz").rename(tmp_path / "x.npy")
    with pytest.raises(FileError, match=r"x\.npy: cannot be read: \d+ bytes must not unpack to"):
        read_trace(tmp_path / "x.npy")
    with gzip.open(tmp_path / "x.csv.gz", "wb") as file:
        file.write(b"0" * (1 << 26))
    tracemalloc.start()
    try:
        with pytest.raises(FileError, match="unpacks to far more than its size"):
            read_trace(tmp_path / "x.csv.gz")
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()


def test_a_small_parquet_file_of_many_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from freshband.channels import _reading

    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "x.parquet"
    parquet.write_table(arrow.table({"a": np.zeros(1 << 20)}), path)
    read_trace(path)
    monkeypatch.setattr(_reading, "_ARRAYS", 1 << 16)
    with pytest.raises(FileError, match=r"x\.parquet: cannot be read: \d+ bytes must not unpack"):
        read_trace(path)


def test_large_whole_numbers_of_a_parquet_file_are_rounded(tmp_path: Path) -> None:
    """As those of an array: one column of times in nanoseconds is no reason to fail."""
    from freshband.channels._reading import read

    arrow = pytest.importorskip("pyarrow")
    numbers = np.array([[2**60 + 1, 1], [2**53 + 1, 0]])
    columns = {"time": numbers[:, 0], "heard": numbers[:, 1]}
    pytest.importorskip("pyarrow.parquet").write_table(arrow.table(columns), tmp_path / "x.parquet")
    np.save(tmp_path / "x.npy", numbers)
    same = [read(str(tmp_path / name), None, None, None).values for name in ("x.parquet", "x.npy")]
    assert np.array_equal(*same)


DEEP = {"list": "[" * 300 + "]" * 300, "map": '{"a":' * 300 + "1" + "}" * 300}


@pytest.mark.parametrize("text", [*DEEP.values(), "[" * 100_000], ids=[*DEEP, "endless"])
def test_json_nested_beyond_reason(text: str, tmp_path: Path) -> None:
    from freshband.experiments.base import _read_json
    from freshband.federated import _checkpoint
    from freshband.federated._terms import read_terms, terms_path

    terms_path(tmp_path).write_text(text)
    with pytest.raises(FileError, match=r"is damaged: it is nested too deeply"):
        read_terms(tmp_path)
    with pytest.raises(FileError, match="is damaged or not a result"):
        _read_json(terms_path(tmp_path))
    body = text.encode()
    digest = hashlib.sha256(body).hexdigest().encode()
    sealed = _checkpoint._HEAD + digest + _checkpoint._MIDDLE + body + _checkpoint._TAIL
    (tmp_path / "round-00000003.json").write_bytes(sealed)
    with pytest.raises(_checkpoint._DamagedError, match="cannot be understood: it is nested"):
        _checkpoint._read(tmp_path / "round-00000003.json", 3)


def test_a_sealed_result_nested_beyond_reason(tmp_path: Path) -> None:
    from freshband._sealed import load_sealed, save_sealed

    save_sealed(xr.Dataset(attrs={"format": "f", "config": DEEP["map"]}), tmp_path / "x.nc")
    with pytest.raises(FileError, match="is damaged or not a result"):
        load_sealed(tmp_path / "x.nc", "f")


def test_a_small_sealed_result_that_asks_for_much_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from freshband import _sealed

    zeros = xr.Dataset({"x": ("t", np.zeros(1 << 21))}, {}, {"format": "f", "config": "{}"})
    _sealed.save_sealed(zeros, tmp_path / "packed.nc")
    monkeypatch.setattr(_sealed, "MUCH", 1 << 16)
    with pytest.raises(FileError, match="is damaged or not a result"):
        _sealed.load_sealed(tmp_path / "packed.nc", "f")
    _sealed.save_sealed(zeros, tmp_path / "ours.nc")  # large: not compressed
    assert _sealed.load_sealed(tmp_path / "ours.nc", "f").identical(zeros)


def test_dotted_keys_beyond_reason(tmp_path: Path) -> None:
    """Python's parser takes time that grows with the square of their number."""
    from freshband.cli._settings import read_toml
    from freshband.cli._training import read_file
    from freshband.flower._scaffold import read_app

    for line in (".".join("a" * 50_000) + "=1", "[" + ".".join("a" * 50_000) + "]", "x={" * 99):
        (tmp_path / "pyproject.toml").write_text(line)
        for read in (read_file, read_toml):
            with pytest.raises(FileError, match="is not TOML: it is nested too deeply"):
                read(tmp_path / "pyproject.toml")
        with pytest.raises(FileError, match=r"cannot read .*: it is nested too deeply"):
            read_app(tmp_path)
    (tmp_path / "x.toml").write_text('policy = "' + "a." * 99 + '"  # ' + "it's a text [" * 50)
    assert "policy" in str(vars(read_file(tmp_path / "x.toml")))


@pytest.mark.parametrize(
    "text",
    [
        'x=["""\nx""", ' + "[" * 3000 + '"""\n',  # inside of texts, if each line is looked at alone
        'x=["""\nx""",{' + ".".join("a" * 30_000) + '=1},"""\n"""]',
        "x=" + ("{" + ".".join("a" * 60) + "=") * 60 + "1" + "}" * 60,  # brackets times dots
        "x=1 # it's\ny=" + "[" * 3000,
    ],
)
def test_toml_that_hides_how_deep_it_is(text: str, tmp_path: Path) -> None:
    from freshband.cli._training import read_file

    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(FileError, match="is not TOML: it is nested too deeply"):
        read_file(tmp_path / "x.toml")


@pytest.mark.parametrize("piece", ['"\\', '"""\\', "'\n", '"\n', "'''", '#"'])
def test_texts_without_an_end_take_no_longer(piece: str) -> None:
    """To look for an end from each quote would take hours."""
    from freshband._parsing import parse_json, parse_toml

    with pytest.raises(json.JSONDecodeError):
        parse_json(piece * 500_000)
    with pytest.raises(tomllib.TOMLDecodeError):
        parse_toml("x=" + piece * 500_000)


def test_brackets_in_texts_and_comments_do_not_count() -> None:
    from freshband._parsing import parse_json, parse_toml

    many = "[" * 99
    assert parse_json(f'{{"it\'s {many}": "\\"{many}"}}') == {f"it's {many}": f'"{many}'}
    lines = (
        f"a = '{many}' # it's {many}",
        f'b = """a "" {many} """"" # {many}',
        "c = [[1.5], [2.5]]",
    )
    assert parse_toml("\n".join(lines)) == {
        "a": many, "b": f'a "" {many} ""', "c": [[1.5], [2.5]],
    }  # fmt: skip


@pytest.mark.parametrize("config", [None, "[]", "5", 5, "{}", '{"settings": true}'])
def test_a_sealed_result_of_somebody_else_is_complete(config: object, tmp_path: Path) -> None:
    """The seal shows damage, not who made the file."""
    from freshband import load_result
    from freshband._sealed import save_sealed
    from freshband.arena import load_arena
    from freshband.federated.comparison import load_comparison
    from freshband.federated.result import load_training

    about = {} if config is None else {"config": config}
    kinds = {"comparison": load_comparison, "training": load_training}
    if not isinstance(config, str) or config[0] != "{":
        kinds |= {"simulation": load_result, "arena": load_arena}
    else:
        del kinds["training"]
    for kind, load in kinds.items():
        path = tmp_path / f"{kind}.nc"
        save_sealed(xr.Dataset(attrs={"format": f"freshband {kind} 1", **about}), path)
        with pytest.raises(FileError, match=f"{kind}.nc is not a complete result: "):
            load(path)
