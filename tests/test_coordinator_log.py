"""The decision log of a coordinator: a line for each round, whatever happens to the file."""

from __future__ import annotations

import json
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from freshband import Coordinator
from freshband.errors import FileError, ParameterError, UnknownNameError
from freshband.fleet.log import Log
from tests.coordinating import started, watch_changes
from tests.simulation.refusing import refused

unchanged = pytest.fixture(watch_changes)


def test_the_log_has_a_line_for_each_round(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    coordinator = Coordinator("glr-cucb", 2, 3, seed=0, log=log)
    expected = []
    for t in range(400):
        plan = coordinator.plan()
        outcome = (plan == (2 if t < 200 else 0)).tolist()
        outcome[0] = None if t % 10 == 3 else outcome[0]
        alarm = coordinator.observe(outcome)
        expected.append(
            {
                "line": t + 1,
                "round": t + 1,
                "assignment": plan.tolist(),
                "outcome": outcome,
                "alarm": alarm,
            }
        )
    lines = log.read_text().splitlines()
    assert [json.loads(line) for line in lines] == expected
    assert any(line["alarm"] is not None for line in expected)
    assert lines[0] == json.dumps(json.loads(lines[0]))


def test_the_log_goes_on_after_a_restart(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    first = Coordinator("cucb", 2, 3, seed=0, log=str(log))
    first.plan()
    first.save(tmp_path / "state")
    second = Coordinator.load(tmp_path / "state", log=log)
    second.observe([True, None])
    second.plan()
    second.observe([False, False])
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert [row["round"] for row in rows] == [1, 2]
    assert rows[0]["outcome"] == [1, None]


def test_without_a_log_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    started(rounds=5)
    assert not list(tmp_path.iterdir())


def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for bad in (tmp_path, tmp_path / "file" / "log", tmp_path / "no folder" / "log"):
        with refused(FileError, "cannot write .*: (Is a dir|Not a dir|No such)"):
            Coordinator("cucb", 2, 4, log=bad)
        started().save(tmp_path / "state")
        with refused(FileError, "cannot write .*: (Is a dir|Not a dir|No such)"):
            Coordinator.load(tmp_path / "state", log=bad)
    with refused(ParameterError, "log must be the path of a file, got 3"):
        # A wrong type is what is tested.
        Coordinator("cucb", 2, 4, log=3)  # type: ignore[arg-type]  # on purpose


def test_a_bad_request_makes_no_log(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError):
        Coordinator("no-such", 2, 4, log=tmp_path / "log")
    (tmp_path / "state.npz").write_bytes(b"nonsense")
    with pytest.raises(FileError):
        Coordinator.load(tmp_path / "state.npz", log=tmp_path / "log")
    assert not (tmp_path / "log").exists()


def test_a_log_that_vanishes(tmp_path: Path, unchanged: Callable[[Coordinator], None]) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    coordinator = started(log=folder / "log")
    coordinator.plan()
    unchanged(coordinator)
    (folder / "log").rename(tmp_path / "moved")
    folder.rmdir()
    with refused(FileError, "cannot write .*log: No such file or directory"):
        coordinator.observe([True, True])
    folder.mkdir()  # the fixture observes again


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux only")
def test_a_full_disk_is_told() -> None:
    coordinator = Coordinator("cucb", 2, 4, log="/dev/full")
    coordinator.plan()
    with refused(FileError, "cannot write /dev/full: No space left on device"):
        coordinator.observe([True, True])
    assert coordinator.round == 0
    assert coordinator.pending is not None


def test_a_full_disk_leaves_no_half_line_and_teaches_nothing(tmp_path: Path) -> None:
    """The size of files is limited in place of a full disk: the system refuses to write more."""
    path = tmp_path / "log"
    coordinator = Coordinator("cucb", 2, 4, log=path)
    coordinator.plan()
    coordinator.observe([True, True])
    before, saved = path.read_bytes(), coordinator.to_bytes()
    coordinator.plan()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    former = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, limits[1]))
    try:
        with refused(FileError, "cannot write .*log: (No space left|File too large)"):
            coordinator.observe([False, True])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, former)
    assert path.read_bytes() == before
    assert coordinator.round == 1
    twin = Coordinator.from_bytes(saved)
    twin.plan()
    for each in (coordinator, twin):
        each.observe([False, True])
    assert coordinator.ages.tolist() == twin.ages.tolist()
    assert len(path.read_text().splitlines()) == 2


def test_a_torn_line_is_cut_off_and_no_round_stands_twice(tmp_path: Path) -> None:
    path = tmp_path / "log"
    coordinator = Coordinator("cucb", 2, 4, log=path)
    for t in range(9):
        coordinator.plan()
        coordinator.observe([True, True])
        if t == 4:
            coordinator.save(tmp_path / "state")
    with path.open("a") as file:
        file.write('{"line": 10, "rou')
    again = Coordinator.load(tmp_path / "state", log=path)
    for _ in range(4):
        again.plan()
        again.observe([True, False])
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["round"] for row in rows] == list(range(1, 10))
    assert [row["outcome"] for row in rows] == [[1, 1]] * 5 + [[1, 0]] * 4
    cut = [json.loads(line) for line in (tmp_path / "log.cut").read_text().splitlines()]
    assert [row["round"] for row in cut] == [6, 7, 8, 9]
    path.write_text("x" * 200_000)  # one line, never finished
    Log(path)
    assert path.read_bytes() == b""


def test_a_saved_state_has_learnt_nothing_that_the_log_may_lose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread plays a round as soon as the log is synced."""
    coordinator = Coordinator("cucb", 2, 4, log=tmp_path / "log")
    synced: list[int] = []

    def sync(log: Log) -> None:
        synced.append(len(log.path.read_text().splitlines()))
        coordinator.plan()
        coordinator.observe([True, True])

    monkeypatch.setattr(Log, "sync", sync)
    for _ in range(2):
        coordinator.save(tmp_path / "state")
    assert synced == [0, 1]
    assert Coordinator.load(tmp_path / "state").round == 1


def test_a_log_is_rotated_by_size(tmp_path: Path) -> None:
    log = Log(tmp_path / "log", max_bytes=300)
    coordinator = Coordinator("cucb", 2, 4, log=log)
    for _ in range(20):
        coordinator.plan()
        coordinator.observe([True, True])
    rows = [
        json.loads(line)["round"]
        for name in ("log.1", "log")
        for line in (tmp_path / name).read_text().splitlines()
    ]
    assert rows == list(range(rows[0], 21))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["log", "log.1"]
    assert max(each.stat().st_size for each in tmp_path.iterdir()) < 500


def test_a_rotation_keeps_link_and_mode(tmp_path: Path) -> None:
    place = tmp_path / "large disk"
    place.mkdir()
    (place / "real").touch(0o600)
    (tmp_path / "log").symlink_to(place / "real")
    log = Log(tmp_path / "log", max_bytes=1)
    for number in (1, 2):
        log.write({"line": number})
    assert (tmp_path / "log").is_symlink()
    assert sorted(each.name for each in place.iterdir()) == ["real", "real.1"]
    assert {each.stat().st_mode & 0o777 for each in place.iterdir()} == {0o600}


def test_no_round_stands_twice_after_a_rotation(tmp_path: Path) -> None:
    """A save, a rotation and a crash: the earlier file has rounds that are played again."""
    log = Log(tmp_path / "log", max_bytes=1000)
    coordinator = Coordinator("cucb", 2, 4, log=log)
    for t in range(20):
        coordinator.plan()
        coordinator.observe([True, True])
        if t == 4:
            coordinator.save(tmp_path / "state")
    again = Coordinator.load(tmp_path / "state", log=log)
    for _ in range(3):
        again.plan()
        again.observe([True, False])
    read = {
        name: [json.loads(line)["round"] for line in (tmp_path / name).read_text().splitlines()]
        for name in ("log.1", "log", "log.cut")
    }
    assert read["log.1"] + read["log"] == list(range(1, 9))
    assert read["log.cut"] == list(range(6, 21))


def test_a_log_with_a_line_nested_beyond_reason(tmp_path: Path) -> None:
    Coordinator("cucb", 2, 4).save(tmp_path / "state")
    (tmp_path / "log").write_text('{"line":' + "[" * 100_000 + "\n")
    Coordinator.load(tmp_path / "state", log=tmp_path / "log")


@pytest.mark.parametrize("channel", [0, 9_999, 10_000, 999_999])
def test_an_alarm_on_a_channel_with_many_digits(channel: int, tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl")
    for number in (1, 2):
        entry = {"line": number, "round": number}
        place = log.write(entry, 999_999)
        log.tell_alarm(place, entry, channel)
    read = [json.loads(line) for line in log.path.read_text().splitlines()]
    assert read == [{"line": k, "round": k, "alarm": channel} for k in (1, 2)]
