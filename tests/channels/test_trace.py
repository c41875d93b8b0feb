from __future__ import annotations

import gzip
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from freshband.channels import Trace, open_air
from freshband.errors import FileError, ParameterError
from tests.channels.cases import DATA
from tests.channels.files import every_format, write
from tests.channels.margins import assert_share, draw, drawn

STATES = np.random.default_rng(0).integers(0, 2, (30, 3))
RATIOS = np.round(np.random.default_rng(1).random((6, 3)), 3)


def save(folder: Path, ending: str, values: Any) -> Path:
    """Write a matrix in one of the formats."""
    path = folder / f"air{ending}"
    names = [f"gw{i}" for i in range(values.shape[1])]
    text = "\n".join([",".join(names), *(",".join(map(repr, row)) for row in values.tolist())])
    if ending == ".csv":
        path.write_text(text + "\n")
    elif ending == ".csv.gz":
        path.write_bytes(gzip.compress(text.encode()))
    elif ending == ".npy":
        np.save(path, values)
    elif ending == ".npz":
        np.savez(path, values)
    else:
        arrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        columns = dict(zip(names, values.T, strict=True))
        parquet.write_table(arrow.table(columns), path)
    return path


@every_format
def test_states_come_back_as_written(tmp_path: Path, ending: str) -> None:
    model = Trace(path=save(tmp_path, ending, STATES))
    assert (model.n_channels, model.has_means) == (3, False)
    np.testing.assert_array_equal(draw(model, 30).states, STATES)


@every_format
def test_ratios_come_back_as_means(tmp_path: Path, ending: str) -> None:
    model = Trace(path=save(tmp_path, ending, RATIOS), rounds_per_row=4)
    assert (model.n_channels, model.has_means) == (3, True)
    np.testing.assert_array_equal(draw(model, 24).means, np.repeat(RATIOS, 4, axis=0))
    assert drawn(model, 24).breakpoints.tolist() == [5, 9, 13, 17, 21]


def test_ratios_are_drawn_from() -> None:
    block = draw(Trace(path=DATA / "ratios.csv", rounds_per_row=10_000), 30_000)
    assert_share(block.states[:10_000, 0].sum(), 10_000, 0.9)
    assert_share(block.states[10_000:, 1].sum(), 20_000, 0.25)
    assert not block.states[:10_000, 2].any()
    assert block.states[10_000:, 2].all()


def test_breakpoints_are_the_rows_that_differ() -> None:
    stream = drawn(Trace(path=DATA / "ratios.csv", rounds_per_row=5), 15)
    assert stream.breakpoints.tolist() == [6, 11]
    assert stream.changed.tolist() == [[False, True, True], [True, False, False]]


def test_quality_is_good_from_the_threshold_on_and_missing_is_bad() -> None:
    model = Trace(path=DATA / "quality.csv", columns="gw*", threshold=-100)
    assert not model.has_means
    assert draw(model, 3).states.tolist() == [[1, 0], [0, 0], [1, 1]]


@every_format
def test_nan_is_bad_in_every_format(tmp_path: Path, ending: str) -> None:
    values = np.array([[-90.0, np.nan], [np.nan, -80.0]])
    model = Trace(path=save(tmp_path, ending, values), kind="quality", threshold=-95)
    assert draw(model, 2).states.tolist() == [[1, 0], [0, 1]]


def test_the_kind_can_be_said(tmp_path: Path) -> None:
    path = save(tmp_path, ".npy", STATES)
    model = Trace(path=path, kind="ratios")
    assert model.has_means
    np.testing.assert_array_equal(draw(model, 30).means, STATES.astype(float))
    with pytest.raises(FileError, match=r"air\.npy, row 1: states must be 0 or 1, got 0\."):
        Trace(path=save(tmp_path, ".npy", RATIOS), kind="states")


def test_rows_of_states_may_last(tmp_path: Path) -> None:
    model = Trace(path=save(tmp_path, ".npy", STATES), rounds_per_row=3)
    np.testing.assert_array_equal(draw(model, 90).states, np.repeat(STATES, 3, axis=0))


def test_past_the_end_is_an_error_unless_wrapped(tmp_path: Path) -> None:
    path = save(tmp_path, ".csv", STATES)
    with pytest.raises(ParameterError) as caught:
        open_air(Trace(path=path, rounds_per_row=2), 61, 0)
    assert str(caught.value) == (
        f"rounds must be at most 60, the length of {path} (or set wrap=true to begin again), got 61"
    )
    wrapped = draw(Trace(path=path, wrap=True), 75).states
    np.testing.assert_array_equal(wrapped, STATES[np.arange(75) % 30])


def test_columns_by_name_pattern_and_order(tmp_path: Path) -> None:
    for ending in (".csv", ".parquet"):
        path = save(tmp_path, ending, STATES)
        assert draw(Trace(path=path, columns="gw1"), 30).states.tolist() == STATES[:, [1]].tolist()
        picked = draw(Trace(path=path, columns=["gw2", "gw*"]), 30).states
        np.testing.assert_array_equal(picked, STATES[:, [2, 0, 1]])
        with pytest.raises(ParameterError, match="has no column 'gw9'; did you mean 'gw"):
            Trace(path=path, columns=["gw0", "gw9"])


def test_all_columns_of_numbers_by_default(tmp_path: Path) -> None:
    path = tmp_path / "air.csv"
    path.write_text("site,a,b\nhill,1,0\nvale,0,1\n")
    assert draw(Trace(path=path), 2).states.tolist() == [[1, 0], [0, 1]]


def test_text_columns_of_parquet_are_left_out_or_refused(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "air.parquet"
    parquet.write_table(arrow.table({"site": ["a", "b"], "x": [True, False], "y": [1, 0]}), path)
    assert draw(Trace(path=path), 2).states.tolist() == [[1, 1], [0, 0]]
    with pytest.raises(FileError, match="column 'site' must hold numbers, got string"):
        Trace(path=path, columns="site")


def test_files_without_a_header_have_numbered_columns(tmp_path: Path) -> None:
    path = tmp_path / "air.csv"
    path.write_text("1,0,1\n0,0,1\n")
    assert draw(Trace(path=path), 2).states.tolist() == [[1, 0, 1], [0, 0, 1]]
    assert draw(Trace(path=path, columns=["2", "0"]), 2).states.tolist() == [[1, 1], [1, 0]]
    numbered = Trace(path=path, columns=[2, 0])  # type: ignore[list-item]
    assert numbered == Trace(path=path, columns=["2", "0"])
    assert Trace(path=path, columns=1) == Trace(path=path, columns="1")  # type: ignore[arg-type]


def test_comments_blank_lines_and_marks_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "air.csv"
    path.write_bytes(b"\xef\xbb\xbfa,b\r\n# measured\r\n\r\n1,0\r\n , \r\n0,1\r\n")
    assert draw(Trace(path=path, columns=["a", "b"]), 2).states.tolist() == [[1, 0], [0, 1]]


def test_arrays_by_key_index_and_transposed(tmp_path: Path) -> None:
    path = tmp_path / "air.npz"
    cube = np.random.default_rng(3).random((4, 3, 5))
    np.savez(path, states=STATES, pdr=cube)
    np.testing.assert_array_equal(draw(Trace(path=path, key="states"), 30).states, STATES)
    model = Trace(path=path, key="pdr", index=2, transpose=True)
    assert model.n_channels == 3
    np.testing.assert_array_equal(draw(model, 5).means, cube[2].T)
    np.testing.assert_array_equal(draw(Trace(path=path, key="pdr", index=0), 3).means, cube[0])


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = save(tmp_path, ".npy", STATES)
    model = Trace(path=path)
    np.save(path, 1 - STATES)
    os.utime(path, ns=(1, 1))
    np.testing.assert_array_equal(draw(model, 30).states, 1 - STATES)
    path.unlink()
    with pytest.raises(FileError, match=r"air\.npy: No such file"):
        draw(model, 30)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "a.csv: is empty"),
        ("a.csv", b"# nothing\n\n", "a.csv: is empty"),
        ("a.csv", b"x,y\n", "a.csv: holds no rows of numbers"),
        ("a.csv", b"x,y\nlow,high\n", "a.csv: holds no rows of numbers"),
        ("a.csv", b"x,y\n1,0\n1\n", "a.csv, line 3: must have 2 cells, got 1"),
        ("a.csv", b"x,y\n1,0\n1,0,1\n", "a.csv, line 3: must have 2 cells, got 3"),
        ("a.csv", b"x,y\n1,0\n\n1,up\n", "a.csv, line 4: column 'y' must hold numbers, got 'up'"),
        ("a.csv", b"x,y\n1,0\n1,7\n", "a.csv, line 3: ratios must be in [0, 1] (or pick the"),
        ("a.csv", b"x,y\n1,0\n1,\n", "a.csv, line 3: ratios must be in [0, 1] (or pick the"),
        ("a.csv", b"x,y\n1,\xff\n", "a.csv: cannot be read: "),
        ("a.csv", b'x,y\n1,"0\n', "a.csv: cannot be read: "),
        ("a.csv.gz", b"x,y\n1,0\n", "a.csv.gz: cannot be read: "),
        (
            "a.csv.gz",
            gzip.compress(b"x,y\n1,0\n" * 99, mtime=0)[:-20],
            "a.csv.gz: cannot be read: ",
        ),
        ("a.npy", b"", "a.npy: cannot be read: "),
        ("a.npy", b"hello", "a.npy: cannot be read: "),
        ("a.npz", b"hello", "a.npz: cannot be read: "),
        ("a.txt", b"1 0\n", "a.txt: the name must end in one of .csv, .csv.gz, .npy, .npz, .parq"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    with pytest.raises(FileError) as caught:
        Trace(path=write(tmp_path, name, content))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_damaged_parquet_file(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(FileError, match=r"a\.parquet: cannot be read: "):
        Trace(path=write(tmp_path, "a.parquet", b"hello"))


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(FileError, match=r"needs pyarrow; .*pip install 'freshband\[traces\]'"):
        Trace(path=write(tmp_path, "a.parquet", b"hello"))


@pytest.mark.parametrize(
    ("array", "params", "error", "message"),
    [
        (np.array([["a", "b"]]), {}, FileError, "a.npy: must hold numbers, got <U1"),
        (np.array([[1j]]), {}, FileError, "a.npy: must hold numbers, got complex128"),
        (np.zeros(5), {}, FileError, "a.npy: must hold a matrix, got 1 dimensions"),
        (np.zeros((2, 2, 2, 2)), {}, FileError, "a.npy: must hold a matrix, got 4 dimensions"),
        (np.zeros((0, 3)), {}, FileError, "a.npy: holds no rows of numbers"),
        (np.zeros((2, 2, 2)), {}, ParameterError, "index must be a whole number in [0, 1] for"),
        (np.zeros((2, 2, 2)), {"index": 2}, ParameterError, "in [0, 1] for"),
        (np.zeros((2, 2)), {"index": 0}, ParameterError, "index must be left out for"),
        (np.array([[0.5, np.nan]]), {}, FileError, "a.npy, row 1: ratios must be in [0, 1]"),
        (np.array([[0], [3]]), {"kind": "ratios"}, FileError, "a.npy, row 2: ratios must be in"),
        (np.array([[0, 3]]), {"transpose": True}, FileError, "a.npy, row 2: ratios must be in"),
    ],
)
def test_bad_arrays(
    tmp_path: Path, array: Any, params: dict[str, Any], error: type[Exception], message: str
) -> None:
    path = tmp_path / "a.npy"
    np.save(path, array)
    with pytest.raises(error) as caught:
        Trace(path=path, **params)
    assert message in str(caught.value)


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.array([[{}]], object), allow_pickle=True)
    with pytest.raises(FileError, match=r"a\.npy: cannot be read: "):
        Trace(path=path)


def test_keys(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, received=STATES, other=STATES)
    with pytest.raises(ParameterError, match=r"key must be one of other, received for .* got None"):
        Trace(path=path)
    with pytest.raises(ParameterError, match="holds no array 'recieved'; did you mean 'received'"):
        Trace(path=path, key="recieved")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "Trace needs a value for 'path'"),
        ({"path": 7}, "path must be text, got 7"),
        ({"path": "a.csv", "kind": "loud"}, "kind must be one of 'auto', 'states', 'ratios', "),
        ({"path": "a.csv", "key": "x"}, "key must be left out for a .csv file, got 'x'"),
        ({"path": "a.npy", "key": "x"}, "key must be left out for a .npy file, got 'x'"),
        ({"path": "a.csv", "index": 1}, "index must be left out for a .csv file, got 1"),
        ({"path": "a.npy", "index": -1}, "index must be a whole number >= 0 or None, got -1"),
        ({"path": "a.npz", "columns": "x"}, "columns must be left out for a .npz file, got ['x']"),
        ({"path": "a.csv", "columns": []}, "columns must be a name or a list of names, got []"),
        ({"path": "a.csv", "columns": [1.5]}, "columns must be a name or a list of names, got [1"),
        ({"path": "a.csv", "columns": {}}, "columns must be a name or a list of names, got {}"),
        ({"path": "a.csv", "rounds_per_row": 0}, "rounds_per_row must be a whole number >= 1"),
        ({"path": "a.csv", "threshold": float("nan")}, "threshold must be a number or None"),
        (
            {"path": "a.csv", "kind": "quality"},
            "threshold must be a number for kind='quality', got None",
        ),
        (
            {"path": "a.csv", "kind": "states", "threshold": 1},
            "threshold must be left out for kind='states', got 1.0",
        ),
    ],
)
def test_bad_parameters(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        Trace(**params)
    assert message in str(caught.value)


def test_the_ending_of_a_name_may_be_in_capitals(tmp_path: Path) -> None:
    path = write(tmp_path, "AIR.CSV.gz", gzip.compress(b"x,y\n1,0\n"))
    assert draw(Trace(path=path), 1).states.tolist() == [[1, 0]]


@pytest.mark.parametrize("path", ["no/such.csv", "no/such.npz"])
def test_a_missing_file(path: str) -> None:
    with pytest.raises(FileError, match=f"{path}: No such file"):
        Trace(path=path)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").mkdir()
    with pytest.raises(FileError, match=r"a\.csv: no such file"):
        Trace(path=tmp_path / "a.csv")


def test_an_offset_counts_rows(tmp_path: Path) -> None:
    path = save(tmp_path, ".csv", STATES)
    model = Trace(path=path, rounds_per_row=2, offset=10)
    assert model.n_rounds == 40
    np.testing.assert_array_equal(draw(model, 40).states, np.repeat(STATES[10:], 2, axis=0))
    with pytest.raises(ParameterError) as caught:
        Trace(path=path, offset=30)
    assert str(caught.value) == f"offset must be less than 30, the rows of {path}, got 30"
    wrapped = Trace(path=path, offset="random", wrap=True)
    runs = {open_air(wrapped, 30, 0, run).block(30).states.tobytes() for run in range(20)}
    assert len(runs) > 10
    assert all(np.frombuffer(run, np.uint8).sum() == STATES.sum() for run in runs)
