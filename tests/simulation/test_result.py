"""Result files: nothing is lost, nothing is half-written, damage is found."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

from freshband import load_result, save_result, simulate, summarise
from freshband._files import check_writable, replacing
from freshband._sealed import save_sealed
from freshband.channels import Table
from freshband.errors import FileError, ParameterError
from tests.simulation.refusing import refused


@pytest.fixture(scope="module")
def result() -> xr.Dataset:
    return simulate("piecewise", "random,glr-cucb", rounds=300, runs=3, seed=1, points=20)


@pytest.fixture
def path(result: xr.Dataset, tmp_path: Path) -> Path:
    save_result(result, tmp_path / "result.nc")
    return tmp_path / "result.nc"


def test_a_result_survives_its_file(result: xr.Dataset, path: Path) -> None:
    again = load_result(path)
    xr.testing.assert_identical(again, result)
    for name, array in result.items():
        assert again[name].dtype == array.dtype


def test_a_loaded_configuration_gives_the_same_result(result: xr.Dataset, path: Path) -> None:
    config = json.loads(load_result(str(path)).attrs["config"])
    repeated = simulate(**config).drop_vars("seconds")
    xr.testing.assert_equal(repeated, result.drop_vars("seconds"))
    assert json.loads(repeated.attrs["config"]) == config


def test_only_detectors_can_miss_a_change(result: xr.Dataset) -> None:
    measures = ("alarms", "detected", "missed", "false_alarms", "delay")
    found = summarise(result)["policies"]
    assert [found["random"][name] for name in measures] == [None] * 5
    looked = found["glr-cucb"]
    assert looked["missed"]["mean"] + looked["detected"]["mean"] == 5
    silent = simulate(
        "piecewise", "glr-cucb", rounds=60, runs=2, policy_options={"glr-cucb": {"delta": 1e-300}}
    )
    found = summarise(silent)["policies"]["glr-cucb"]
    assert (found["alarms"]["mean"], found["missed"]["mean"], found["delay"]) == (0, 5, None)


def test_a_policy_nobody_knows_here_has_a_detector_if_it_raised_alarms(result: xr.Dataset) -> None:
    config = {**json.loads(result.attrs["config"]), "policies": ["mine", "yours"]}
    own = result.assign_coords(policy=["mine", "yours"]).assign_attrs(config=json.dumps(config))
    raised = own.assign(alarms=own.alarms + (own.policy == "mine"))
    found = summarise(raised)["policies"]
    assert found["mine"]["missed"] is not None
    assert (found["yours"]["missed"] is None) == (int(own.alarms.sel(policy="yours").sum()) == 0)


def test_long_configurations_fit(tmp_path: Path) -> None:
    states = np.random.default_rng(0).integers(0, 2, (6000, 5))
    long = simulate(Table(states=states), "random", rounds=50, runs=1)
    assert len(long.attrs["config"]) > 2**16  # what an attribute of HDF5 usually holds
    save_result(long, tmp_path / "long.nc")
    xr.testing.assert_identical(load_result(tmp_path / "long.nc"), long)


def test_any_reader_of_netcdf_can_open_it(result: xr.Dataset, path: Path) -> None:
    with xr.open_dataset(path, engine="h5netcdf") as again:
        xr.testing.assert_identical(again.load(), result)
    with h5py.File(path) as file:
        assert set(result) <= set(file)


def test_what_another_tool_wrote_has_no_seal(result: xr.Dataset, tmp_path: Path) -> None:
    """HDF5 reads other numbers from damaged files, or hangs: nothing shows that this one is not."""
    result.to_netcdf(tmp_path / "plain.nc", engine="h5netcdf")
    with refused(FileError, "is damaged or not a result: it has no seal"):
        load_result(tmp_path / "plain.nc")


def test_saving_makes_folders_and_leaves_no_other_file(result: xr.Dataset, tmp_path: Path) -> None:
    target = tmp_path / "some" / "folder" / "result"
    save_result(result, target)
    save_result(result, target)
    assert [each.name for each in target.parent.iterdir()] == ["result"]
    load_result(target)


# ---------------------------------------------------------------------------------------- damage


def test_truncated_files(path: Path) -> None:
    data = path.read_bytes()
    for length in (0, 1, 8, 100, len(data) // 2, len(data) - 60, len(data) - 1):
        path.write_bytes(data[:length])
        with refused(FileError, r"result\.nc is damaged"):
            load_result(path)


def test_every_flipped_bit_is_found(path: Path) -> None:
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    places = [*rng.integers(len(data) - 60, size=200), len(data) - 1, 0, 5]
    for place in places:
        damaged = bytearray(data)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        with refused(FileError, r"result\.nc is damaged: its checksum does not match"):
            load_result(path)


@pytest.mark.parametrize(
    "content", [b"", b"round,age\n", b"\x89PNG\r\n\x1a\n" + bytes(99), b"\x89HDF\r\n\x1a\n"]
)
def test_files_of_another_format(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "other.nc"
    path.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with refused(FileError, r"other\.nc is damaged or not a result"):
            load_result(path)


def test_datasets_of_somebody_else(result: xr.Dataset, tmp_path: Path) -> None:
    path = tmp_path / "other.nc"
    save_sealed(xr.Dataset({"x": ("t", [1, 2])}), path)
    with refused(FileError, "must have the format 'freshband simulation 1', got None"):
        load_result(path)
    newer = result.assign_attrs(format="freshband simulation 2")
    save_sealed(newer, path)
    with refused(FileError, "must have the format 'freshband simulation 1', got 'freshband sim"):
        load_result(path)


# ----------------------------------------------------------------------------------------- paths


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with refused(FileError, r"cannot read .*nothing\.nc: No such file or directory"):
        load_result(tmp_path / "nothing.nc")
    with refused(FileError, "cannot read .*: Is a directory"):
        load_result(tmp_path)


@pytest.mark.parametrize("bad", [None, 3, "", b"x", ["x"], "a\0b"])
def test_paths_must_be_paths(result: xr.Dataset, bad: Any) -> None:
    for use in (load_result, check_writable, lambda path: save_result(result, path)):
        with refused(ParameterError, "path must be the path of a file, got "):
            use(bad)


def test_paths_that_cannot_be_written(result: xr.Dataset, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("kept")
    for bad, message in {
        tmp_path: "it is a folder",
        file / "x.nc": "is not a writable folder",
        file / "deeper" / "x.nc": "is not a writable folder",
        tmp_path / ("x" * 300): "File name too long",
    }.items():
        with refused(FileError, f"cannot write .*: .*{message}"):
            save_result(result, bad)
    assert file.read_text() == "kept"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_folder_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write anywhere
    with refused(FileError, "cannot write .*: .* is not a writable folder"):
        check_writable(tmp_path / "x.nc")


@pytest.mark.parametrize("problem", [OSError(28, "No space left"), KeyboardInterrupt, ValueError])
def test_a_failed_save_keeps_the_old_file(
    result: xr.Dataset, path: Path, monkeypatch: pytest.MonkeyPatch, problem: Any
) -> None:
    before = path.read_bytes()

    def fail(self: xr.Dataset, scratch: Path, **settings: Any) -> None:
        scratch.write_bytes(b"half")
        raise problem

    monkeypatch.setattr(xr.Dataset, "to_netcdf", fail)
    kind = FileError if isinstance(problem, OSError) else problem
    with pytest.raises(kind):
        save_result(result, path)
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == ["result.nc"]


@pytest.mark.parametrize("other", [None, 3, {}, xr.Dataset({"x": 1})])
def test_only_results_can_be_saved(other: Any, tmp_path: Path) -> None:
    with refused(ParameterError, "result must come from simulate or load_result, got "):
        save_result(other, tmp_path / "x.nc")
    assert not list(tmp_path.iterdir())


def test_replacing_lends_a_scratch_file_of_the_same_ending(tmp_path: Path) -> None:
    with replacing(tmp_path / "new" / "picture.svg") as scratch:
        assert scratch.suffix == ".svg"
        assert scratch.parent == tmp_path / "new"
        scratch.write_text("drawn")
        assert not (tmp_path / "new" / "picture.svg").exists()
    assert (tmp_path / "new" / "picture.svg").read_text() == "drawn"
    assert not scratch.exists()
