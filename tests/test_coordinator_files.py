"""Saved coordinators: all is restored, and nothing damaged, foreign or pickled is read."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from freshband import Coordinator
from freshband.errors import FileError, ParameterError
from freshband.schedulers.base import registry
from tests.coordinating import content, started, watch_changes
from tests.simulation.refusing import refused

unchanged = pytest.fixture(watch_changes)


# ---------------------------------------------------------------------------------- saved files


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of a coordinator in the middle of a run."""
    target = tmp_path / "state.npz"
    started().save(target)
    return target


def rewrite(path: Path, header: Callable[[dict[str, Any]], Any], drop: str | None = None) -> None:
    """Change the header of a saved file, or leave out an array, with a checksum that fits."""
    from freshband._packed import checksum

    with np.load(path, allow_pickle=False) as archive:
        held = {name: archive[name] for name in archive.files}
    text = json.dumps(header(json.loads(str(held.pop("header")))), sort_keys=True)
    held.pop("checksum")
    if drop is not None:
        held.pop(drop)
    np.savez(path, header=np.array(text), checksum=np.array(checksum(text, held)), **held)


def test_a_file_holds_arrays_and_a_header_and_nothing_pickled(path: Path) -> None:
    with np.load(path, allow_pickle=False) as archive:
        held = {name: archive[name] for name in archive.files}
    header = json.loads(str(held.pop("header")))
    assert header["format"] == "freshband coordinator 2"
    assert (header["policy"], header["options"], header["round"]) == ("cucb", {}, 20)
    assert len(str(held.pop("checksum"))) == 64
    assert {name.split(".")[0] for name in held} == {
        "fleet", "scheduler", "matching", "members", "left"
    }  # fmt: skip
    assert all(array.dtype.kind in "biufV" for array in held.values())
    assert not any(array.dtype.hasobject for array in held.values())


def test_everything_is_restored(tmp_path: Path) -> None:
    options = {"delta": np.float64(0.25), "n_segments": np.int64(3)}
    coordinator = Coordinator("glr-cucb:paper", 2, 4, 10**30, options=options, horizon=500)
    coordinator.plan()
    coordinator.save(tmp_path / "state.npz")
    again = Coordinator.load(str(tmp_path / "state.npz"))
    assert again.policy == coordinator.policy
    assert again.policy.options == {"delta": 0.25, "n_segments": 3}
    assert (again.n_clients, again.n_channels) == (2, 4)
    assert (again.seed, again.horizon) == (10**30, 500)
    assert again.pending is not None
    np.testing.assert_array_equal(again.pending, coordinator.pending)


def test_saving_leaves_no_other_file_and_replaces_the_old_one(tmp_path: Path, path: Path) -> None:
    coordinator = started(rounds=30)
    coordinator.save(path)
    assert [each.name for each in tmp_path.iterdir()] == ["state.npz"]
    assert Coordinator.load(path).round == 30


def test_saving_needs_no_particular_ending(tmp_path: Path) -> None:
    started(rounds=7).save(tmp_path / "state")
    assert Coordinator.load(tmp_path / "state").round == 7


def test_a_failed_save_keeps_the_old_file(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()

    def fail(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[:100])
        raise OSError(28, "No space left on device")

    coordinator = started(rounds=3)
    monkeypatch.setattr(Path, "write_bytes", fail)
    with refused(FileError, r"cannot write .*state\.npz: No space left on device"):
        coordinator.save(path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["state.npz"]


def test_paths_that_cannot_be_written(
    tmp_path: Path, unchanged: Callable[[Coordinator], None]
) -> None:
    (tmp_path / "file").write_text("a file")
    coordinator = started()
    unchanged(coordinator)
    for bad in (tmp_path / "file" / "x", tmp_path / ("x" * 300)):
        with refused(
            FileError, "cannot write .*: (.* is not a writable folder|File name too long)"
        ):
            coordinator.save(bad)
    for folder in (tmp_path, "/", "."):
        with refused(FileError, "cannot write .*: it is a folder"):
            coordinator.save(folder)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["content.npz", "file"]


@pytest.mark.parametrize("bad", [None, 3, "", b"file", ["file"], "a\0b"])
def test_paths_must_be_paths(bad: Any) -> None:
    with refused(ParameterError, "path must be the path of a file, got "):
        started().save(bad)
    with refused(ParameterError, "path must be the path of a file, got "):
        Coordinator.load(bad)


def test_files_that_are_missing_or_folders(tmp_path: Path) -> None:
    with refused(FileError, "cannot read .*nothing: No such file or directory"):
        Coordinator.load(tmp_path / "nothing")
    with refused(FileError, "cannot read .*: Is a directory"):
        Coordinator.load(tmp_path)


def test_truncated_files(path: Path) -> None:
    data = path.read_bytes()
    for length in (0, 1, 10, len(data) // 2, len(data) - 30, len(data) - 1):
        path.write_bytes(data[:length])
        with refused(FileError, r"state\.npz is damaged or not a coordinator's file"):
            Coordinator.load(path)


def test_a_flipped_bit_is_found_or_harmless(path: Path) -> None:
    data, expected = path.read_bytes(), content(Coordinator.load(path), path.parent)
    rng = np.random.default_rng(0)
    found = 0
    for place in rng.integers(len(data), size=150):
        damaged = bytearray(data)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            again = Coordinator.load(path)
        except FileError:
            with refused(FileError, "damaged"):
                Coordinator.load(path)
            found += 1
        else:  # a time stamp of the archive, say
            assert content(again, path.parent) == expected
    assert found > 75


def test_a_file_changed_on_purpose(path: Path) -> None:
    with np.load(path, allow_pickle=False) as archive:
        held = {name: archive[name] for name in archive.files}
    held["fleet.since"] = held["fleet.since"] + 1
    np.savez(path, **held)
    with refused(FileError, "is damaged: its checksum does not match"):
        Coordinator.load(path)


def other_formats(folder: Path) -> dict[str, bytes]:
    array, archive, zipped = io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.save(array, np.arange(3))
    np.savez(archive, weights=np.arange(3))
    with zipfile.ZipFile(zipped, "w") as file:
        file.writestr("readme.txt", "hello")
    return {
        "text": b"round,age\n1,2\n",
        "json": b'{"format": "freshband coordinator 1"}',
        "npy": array.getvalue(),
        "npz": archive.getvalue(),
        "zip": zipped.getvalue(),
        "pickle": pickle.dumps({"format": "freshband coordinator 1"}),
        "netcdf": b"\x89HDF\r\n\x1a\n" + bytes(500),
    }


@pytest.mark.parametrize("kind", list(other_formats(Path())))
def test_files_of_another_format(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_bytes(other_formats(tmp_path)[kind])
    with refused(FileError, "other is damaged or not a coordinator's file"):
        Coordinator.load(path)


class Trap:
    """An object whose unpickling leaves a mark."""

    sprung = False

    def __reduce__(self) -> tuple[Any, ...]:
        return _spring, ()


def _spring() -> NDArray[Any]:
    Trap.sprung = True
    return np.zeros(2)


def test_pickled_content_is_never_read(path: Path) -> None:
    with np.load(path, allow_pickle=False) as archive:
        held: dict[str, Any] = {name: archive[name] for name in archive.files}
    held["fleet.since"] = np.array([Trap(), Trap()], object)
    np.savez(path, allow_pickle=True, **held)
    with refused(FileError, "is damaged or not a coordinator's file"):
        Coordinator.load(path)
    path.write_bytes(pickle.dumps(Trap()))
    with refused(FileError, "is damaged or not a coordinator's file"):
        Coordinator.load(path)
    assert not Trap.sprung


def test_files_of_a_newer_version(path: Path) -> None:
    rewrite(path, lambda header: {**header, "format": "freshband coordinator 3"})
    with refused(
        FileError, "must have the format 'freshband coordinator 2', got 'freshband coordinator 3'"
    ):
        Coordinator.load(path)


def without(*names: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda header: {name: value for name, value in header.items() if name not in names}


@pytest.mark.parametrize(
    ("change", "drop", "message"),
    [
        (without("seed"), None, "it lacks 'seed'"),
        (without("rng"), None, "it lacks 'rng'"),
        (lambda header: {**header, "policy": "no-such"}, None, "unknown scheduler 'no-such'"),
        (lambda header: {**header, "policy": "m-exp3"}, None, "is not possible at"),
        (lambda header: {**header, "policy": "oracle"}, None, "'oracle' sees the channels"),
        (lambda header: {**header, "n_clients": 0}, None, "n_clients must be a whole number"),
        (lambda header: {**header, "options": {"x": 1}}, None, "Cucb has no parameter 'x'"),
        (lambda header: {**header, "rng": {"state": 1}}, None, "."),
        (lambda header: header, "fleet.since", "does not fit this problem at 'fleet.since'"),
    ],
)
def test_files_of_another_problem(path: Path, change: Any, drop: str | None, message: str) -> None:
    rewrite(path, change, drop)
    with refused(FileError, f"cannot restore .*state.npz: .*{message}"):
        Coordinator.load(path)


def test_a_header_that_is_no_mapping(path: Path) -> None:
    rewrite(path, lambda header: [header])
    with refused(FileError, "is damaged or not a coordinator's file"):
        Coordinator.load(path)


def test_a_scheduler_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started("cucb").save(tmp_path / "state")
    monkeypatch.setattr(
        registry, "_things", {k: v for k, v in registry._things.items() if k != "cucb"}
    )
    with refused(FileError, "cannot restore .*state: unknown scheduler 'cucb'; did you mean"):
        Coordinator.load(tmp_path / "state")
