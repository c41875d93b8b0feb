from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from freshband.errors import FileError
from freshband.federated._download import Archive, cache_folder, fetch
from freshband.federated.data.cifar import _read_folder
from tests.federated.files import TINY_10, Server, archive_of, pack, serving


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path / "web") as running:
        yield running


def quiet() -> Console:
    return Console(file=io.StringIO())


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


def test_an_archive_is_fetched_once_and_unpacked(tmp_path: Path, server: Server) -> None:
    archive = archive_of(tmp_path / "web", TINY_10, server.url)
    cache = tmp_path / "deep" / "cache"
    shown = io.StringIO()
    folder = fetch(archive, cache, Console(file=shown, force_terminal=True, width=120))
    assert "tiny-binary.tar.gz" in shown.getvalue()
    assert "100%" in shown.getvalue() or "━" in shown.getvalue()
    assert names(folder) == sorted(TINY_10.sizes)  # neither the readme nor the mischief
    assert names(tmp_path / "deep") == sorted(["cache", TINY_10.folder, *TINY_10.sizes])
    _read_folder(folder, TINY_10)
    assert fetch(archive, cache) == folder
    assert len(server.asked) == 1


def test_a_damaged_copy_is_fetched_again(tmp_path: Path, server: Server) -> None:
    archive = archive_of(tmp_path / "web", TINY_10, server.url)
    folder = fetch(archive, tmp_path, quiet())
    (folder / "data_batch_2.bin").write_bytes(b"short")
    fetch(archive, tmp_path, quiet())
    _read_folder(folder, TINY_10)
    assert len(server.asked) == 2


def test_half_an_archive_from_before_is_replaced(tmp_path: Path, server: Server) -> None:
    archive = archive_of(tmp_path / "web", TINY_10, server.url)
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "tiny-binary.tar.gz").write_bytes(b"half")
    _read_folder(fetch(archive, cache, quiet()), TINY_10)


def test_a_wrong_checksum_is_refused(tmp_path: Path, server: Server) -> None:
    archive = archive_of(tmp_path / "web", TINY_10, server.url)._replace(
        checksum="sha256:" + "0" * 64
    )
    cache = tmp_path / "cache"
    with pytest.raises(FileError, match=r"hash.*name the folder as data_dir") as caught:
        fetch(archive, cache, quiet())
    assert "\n" not in str(caught.value)
    assert names(cache) == []


def test_what_is_not_there_is_named(tmp_path: Path, server: Server) -> None:
    archive = Archive(f"{server.url}/gone.tar.gz", "sha256:" + "0" * 64, "f", {"a.bin": 1})
    with pytest.raises(FileError, match=r"gone\.tar\.gz: cannot be downloaded to .*404"):
        fetch(archive, tmp_path / "cache", quiet())


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    with serving(tmp_path / "web") as gone:
        pass
    archive = Archive(f"{gone.url}/a.tar.gz", "sha256:" + "0" * 64, "f", {"a.bin": 1})
    with pytest.raises(FileError, match="cannot be downloaded to"):
        fetch(archive, tmp_path / "cache", quiet())


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, server: Server) -> None:
    archive = archive_of(tmp_path / "web", TINY_10, server.url)
    (tmp_path / "cache").write_text("a file, not a folder")
    with pytest.raises(FileError, match="cache"):
        fetch(archive, tmp_path / "cache", quiet())


@pytest.mark.parametrize("content", [{}, {"f/a.bin": b"12"}, {"g/a.bin": b"123"}])
def test_an_archive_of_other_files_is_named(
    tmp_path: Path, server: Server, content: dict[str, bytes]
) -> None:
    checksum = pack(tmp_path / "web" / "other.tar.gz", content)
    archive = Archive(f"{server.url}/other.tar.gz", checksum, "f", {"a.bin": 3})
    with pytest.raises(FileError, match=r"should hold f/a\.bin of 3 bytes"):
        fetch(archive, tmp_path / "cache", quiet())


def test_what_is_no_archive_is_named(tmp_path: Path, server: Server) -> None:
    (tmp_path / "web" / "text.tar.gz").write_bytes(b"not compressed")
    checksum = "sha256:" + hashlib.sha256(b"not compressed").hexdigest()
    archive = Archive(f"{server.url}/text.tar.gz", checksum, "f", {"a.bin": 3})
    with pytest.raises(FileError, match=r"text\.tar\.gz: cannot be unpacked into"):
        fetch(archive, tmp_path / "cache", quiet())


def test_the_cache_can_be_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRESHBAND_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("FRESHBAND_CACHE")
    assert "freshband" in str(cache_folder())
