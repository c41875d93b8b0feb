"""Recorded links that differ per client: a column or a slice for each."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from freshband.channels import Trace, open_air
from freshband.errors import FileError, ParameterError
from tests.channels.files import every_format, write
from tests.channels.margins import draw, drawn

CUBE = np.round(np.random.default_rng(4).random((6, 2, 3)), 3)  # rows, clients, channels
LINKS = {f"c{i}/ch{k}": CUBE[:, i, k] for i in range(2) for k in range(3)}


def save_links(folder: Path, ending: str, links: dict[str, Any] = LINKS) -> Path:
    """Write columns named client/channel, or the cube itself."""
    path = folder / f"links{ending}"
    rows = zip(*(values.tolist() for values in links.values()), strict=True)
    text = "\n".join([",".join(links), *(",".join(map(repr, row)) for row in rows)])
    if ending == ".csv":
        path.write_text(text)
    elif ending == ".csv.gz":
        path.write_bytes(gzip.compress(text.encode()))
    elif ending == ".parquet":
        arrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(arrow.table(links), path)
    else:
        (np.save if ending == ".npy" else np.savez)(path, CUBE)
    return path


@every_format
def test_links_come_back_as_written(tmp_path: Path, ending: str) -> None:
    model = Trace(path=save_links(tmp_path, ending), per_client=True)
    assert (model.n_clients, model.n_channels, model.has_means) == (2, 3, True)
    np.testing.assert_array_equal(draw(model, 6).means, CUBE)
    assert drawn(model, 6).changed.shape == (5, 3)


def test_links_are_numbered_as_they_first_appear(tmp_path: Path) -> None:
    names = ["c1/ch2", "c0/ch0", "c1/ch0", "c0/ch2"]
    links = {"time": np.arange(6.0), **{name: LINKS[name] for name in names}}
    for ending in (".csv", ".parquet"):
        model = Trace(path=save_links(tmp_path, ending, links), per_client=True)
        np.testing.assert_array_equal(draw(model, 6).means, CUBE[:, [1, 0]][:, :, [2, 0]])
    one = Trace(path=tmp_path / "links.csv", per_client=True, columns="c0/*")
    np.testing.assert_array_equal(draw(one, 6).means, CUBE[:, [0]][:, :, [0, 2]])


def test_the_last_slash_separates_client_and_channel(tmp_path: Path) -> None:
    links = {"hall/a/868": np.array([1, 0]), "hall/b/868": np.array([0, 0])}
    model = Trace(path=save_links(tmp_path, ".csv", links), per_client=True)
    assert draw(model, 2).states.tolist() == [[[1], [0]], [[0], [0]]]


def test_links_of_states_and_quality(tmp_path: Path) -> None:
    path = tmp_path / "links.npy"
    np.save(path, (CUBE > 0.5).astype(int))
    model = Trace(path=path, per_client=True, wrap=True)
    assert not model.has_means
    np.testing.assert_array_equal(draw(model, 12).states, np.tile(CUBE > 0.5, (2, 1, 1)))
    np.save(path, np.where(CUBE > 0.5, -90.0, np.nan))
    quality = Trace(path=path, per_client=True, threshold=-100)
    np.testing.assert_array_equal(draw(quality, 6).states, CUBE > 0.5)


def test_an_array_of_links_may_have_its_rows_last(tmp_path: Path) -> None:
    path = tmp_path / "links.npy"
    np.save(path, np.moveaxis(CUBE, 0, -1))
    model = Trace(path=path, per_client=True, transpose=True, offset=2)
    np.testing.assert_array_equal(draw(model, 4).means, CUBE[2:])


@pytest.mark.parametrize(
    ("header", "params", "message"),
    [
        ("a,b", {}, "columns: PATH has no column '*/*'; "),
        ("c0/a,b", {"columns": ["c0/a", "b"]}, "PATH: column 'b' must be named client/channel"),
        ("c0/a,c1/b", {}, "PATH: needs a column 'c0/b'"),
        ("c0/a,c0/a", {}, "PATH: column 'c0/a' must not stand twice"),
        ("c0/a,c1/a", {"transpose": True}, "transpose must be left out for the columns of a .csv"),
    ],
)
def test_bad_columns_of_links(
    tmp_path: Path, header: str, params: dict[str, Any], message: str
) -> None:
    path = write(tmp_path, "a.csv", f"{header}\n1,0\n0,1\n".encode())
    with pytest.raises((FileError, ParameterError)) as caught:
        Trace(path=path, per_client=True, **params)
    assert str(caught.value).startswith(message.replace("PATH", str(path)))


def test_bad_arrays_of_links(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.zeros((4, 2)))
    with pytest.raises(FileError, match=r"a\.npy: must have 3 dimensions, because links differ"):
        Trace(path=path, per_client=True)
    np.save(path, np.full((4, 2, 3), 7))
    with pytest.raises(FileError, match=r"a\.npy, row 1: ratios must be in \[0, 1\]"):
        Trace(path=path, per_client=True)
    with pytest.raises(ParameterError, match="index must be left out when links differ per client"):
        Trace(path=path, per_client=True, index=0)
    np.save(path, np.zeros((4, 2, 3)))
    with pytest.raises(ParameterError, match="clients must be 2, those Trace gives links for, "):
        open_air(Trace(path=path, per_client=True), 4, 0, clients=3)
