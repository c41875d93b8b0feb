"""Files are complete or not there, whoever else writes them."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from freshband._files import check_appendable, make_folder, replacing, sweep, write_whole
from freshband.errors import FileError


def test_a_failed_write_leaves_what_was_there_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "state.bin"
    write_whole(path, b"old")

    def fill_the_disk() -> None:
        with replacing(path) as scratch:
            scratch.write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(FileError, match=r"cannot write .*state\.bin: No space left on device"):
        fill_the_disk()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_threads_that_write_one_file_leave_one_of_theirs_whole(tmp_path: Path) -> None:
    path = tmp_path / "state.bin"
    written = [bytes([number]) * 100_000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            list(pool.map(lambda data: write_whole(path, data), written))
            assert path.read_bytes() in written
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_and_a_mode_are_kept(tmp_path: Path) -> None:
    real, link = tmp_path / "elsewhere" / "real.bin", tmp_path / "link.bin"
    write_whole(real, b"old")
    real.chmod(0o640)
    link.symlink_to(real)
    write_whole(link, b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_what_replaces_a_private_file_is_private_from_the_first_byte(tmp_path: Path) -> None:
    path = tmp_path / "state.bin"
    write_whole(path, b"old")
    path.chmod(0o600)
    with replacing(path) as scratch:
        assert stat.S_IMODE(scratch.stat().st_mode) == 0o600


def test_a_new_file_has_the_mode_other_programs_give_theirs(tmp_path: Path) -> None:
    write_whole(tmp_path / "ours", b"")
    (tmp_path / "theirs").write_bytes(b"")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "theirs").stat().st_mode


@pytest.mark.parametrize("name", ["a" * 255, "é" * 127, "x.nc"])
def test_names_may_be_as_long_as_the_system_allows(tmp_path: Path, name: str) -> None:
    write_whole(tmp_path / name, b"data")
    assert (tmp_path / name).read_bytes() == b"data"


def test_what_was_left_half_written_is_swept_away(tmp_path: Path) -> None:
    kept = tmp_path / "kept.bin"
    write_whole(kept, b"data")
    with replacing(kept) as scratch:
        leftover = scratch.with_name(scratch.name + "x")  # as after a kill
        leftover.touch()
        (tmp_path / ".123.old").touch()
    sweep(tmp_path, ".*.old")
    assert list(tmp_path.iterdir()) == [kept]


def test_what_cannot_be_written_is_said_beforehand(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for use in (lambda path: make_folder(path / "folder"), check_appendable):
        with pytest.raises(FileError, match="cannot write"):
            use(tmp_path / "file" / "below")
    make_folder(tmp_path / "new" / "folder")
    assert not list((tmp_path / "new" / "folder").iterdir())
    assert check_appendable(tmp_path / "log").exists()


def test_files_are_on_the_disk_before_they_are_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is synced before the rename, the folder after it."""
    done: list[str] = []
    fsync, rename = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (done.append("sync"), fsync(handle))[1])
    monkeypatch.setattr(
        Path, "replace", lambda self, to: (done.append("replace"), rename(self, to))[1]
    )
    write_whole(tmp_path / "state.bin", b"data")
    assert done == ["sync", "replace", "sync"]


def test_processes_that_write_one_file_leave_it_whole(tmp_path: Path) -> None:
    """Also where all of them have the same number, as in containers: names are random."""
    program = (
        "import sys; from freshband._files import write_whole\n"
        "for _ in range(40): write_whole(sys.argv[1], sys.argv[2].encode() * 5000)"
    )
    target = tmp_path / "state"
    command = [sys.executable, "-c", program, str(target)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    writers = [subprocess.Popen([*command, letter], env=env) for letter in "abc"]
    seen = 0
    while any(writer.poll() is None for writer in writers):
        if target.exists():
            data = target.read_bytes()
            assert len(data) == 5000
            assert len(set(data)) == 1
            seen += 1
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert seen > 0
    assert [each.name for each in tmp_path.iterdir()] == ["state"]


def test_what_a_killed_writer_left_long_ago_is_swept_away(tmp_path: Path) -> None:
    old, new, other = (
        tmp_path / f".freshband-{digit * 16}.{name}"
        for digit, name in (("0", "state"), ("1", "state"), ("2", "else"))
    )
    for each in (old, new, other):
        each.write_bytes(b"half")
    for each in (old, other):
        os.utime(each, (0, 0))
    write_whole(tmp_path / "state", b"whole")
    assert not old.exists()  # nobody writes to it any more
    assert new.exists()  # perhaps somebody does
    assert other.exists()  # of another file
