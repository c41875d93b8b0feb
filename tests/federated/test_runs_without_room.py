"""Runs that find no room on the disk keep their last checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshband.errors import FileError
from freshband.federated.runs import resume_run, start_run
from tests.federated.resuming import TINY, assert_same_run, tiny, whole
from tests.federated.test_checkpoint import largest_file, on_small_disk

# ------------------------------------------------------------------------------ no room


def test_no_room_for_the_first_checkpoint_ends_it_before_training(tmp_path: Path) -> None:
    with largest_file(4096), pytest.raises(FileError, match="File too large; no round was saved"):
        start_run(tiny(), tmp_path / "a")
    assert [path for path in (tmp_path / "a").rglob("*") if path.is_file()] == []
    start_run(tiny(), tmp_path / "a")


def test_no_room_later_ends_it_with_the_last_checkpoint_intact(tmp_path: Path) -> None:
    run = start_run(tiny(), tmp_path / "a", checkpoint_every=4)
    rounds = iter(run)
    while run.round < 5:
        next(rounds)
    with (
        largest_file(4096),
        pytest.raises(FileError, match=r"too large; round 4 of 14 is safe: .*--resume .*/a"),
    ):
        list(rounds)
    assert resume_run(tmp_path / "a").round == 4
    list(resume_run(tmp_path / "a"))
    whole(TINY, tmp_path / "b")
    assert_same_run(tmp_path / "a", tmp_path / "b")


def test_no_room_when_the_loop_is_left_is_noted(tmp_path: Path) -> None:
    run = start_run(tiny(), tmp_path / "a")
    with largest_file(4096):
        for _ in run:
            break
    assert "too large; round 0 of 14 is safe" in run.notes[0]
    assert resume_run(tmp_path / "a").round == 0


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(FileError, match="cannot write into"):
            start_run(tiny(), out)


FULL = """
import json, os, subprocess, sys
from pathlib import Path
from freshband.errors import FileError
from freshband.federated.runs import resume_run, start_run
from freshband.federated.settings import Training

out = Path(sys.argv[1])
settings = Training(model="mlp", clients=4, rounds=9, scheduler="random", workers=1)
run = start_run(settings, out, checkpoint_every=2)
ballast = out.parent / "ballast"
try:
    for record in run:
        if record.round == 5:
            room = os.statvfs(out).f_bavail * os.statvfs(out).f_frsize
            ballast.write_bytes(b"x" * (room - 8192))
except FileError as error:
    assert "No space left on device; round 4 of 9 is safe" in str(error), error
else:
    raise AssertionError("there was room")
assert not [path for path in out.rglob(".*")]
ballast.unlink()
subprocess.run(["mount", "-o", "remount,ro", str(out.parent)], check=True)
run = resume_run(out)
assert run.round == 4
try:
    list(run)
except FileError as error:
    assert "Read-only file system; round 4 of 9 is safe" in str(error), error
else:
    raise AssertionError("it was written")
try:
    start_run(settings, out.parent / "other")
except FileError as error:
    assert "Read-only file system" in str(error), error
else:
    raise AssertionError("it was written")
subprocess.run(["mount", "-o", "remount,rw", str(out.parent)], check=True)
run = resume_run(out)
assert [record.round for record in run] == [5, 6, 7, 8, 9] and run.finished
print("fine")
"""


@pytest.mark.slow
def test_a_full_disk_and_a_read_only_one(tmp_path: Path) -> None:
    assert on_small_disk(FULL, tmp_path, 2048).strip() == "fine"
