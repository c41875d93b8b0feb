"""The coordinator: what it promises, and that misuse gets a clear error and changes nothing."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import pickle
import resource
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from freshband import Coordinator
from freshband.errors import FileError, ParameterError, SequenceError, UnknownNameError
from freshband.fleet.log import Log
from tests.coordinating import content, started, watch_changes
from tests.simulation.refusing import refused

POLICIES = ["cucb", "m-exp3"]  # one that ignores single unknown outcomes, one that skips the round

unchanged = pytest.fixture(watch_changes)


# ------------------------------------------------------------------------------------- the round


def test_a_round() -> None:
    coordinator = Coordinator("cucb", n_clients=2, n_channels=4, seed=0)
    assert coordinator.round == 0
    assert coordinator.pending is None
    assert coordinator.ages.tolist() == [1, 1]
    plan = coordinator.plan()
    assert plan.dtype == np.int64
    assert plan.shape == (2,)
    assert coordinator.pending is not None
    np.testing.assert_array_equal(coordinator.pending, plan)
    assert coordinator.round == 0
    assert coordinator.observe([True, False]) is None
    assert coordinator.round == 1
    assert coordinator.pending is None
    assert coordinator.ages.tolist() == [1, 2]


def test_what_it_hands_out_are_copies(unchanged: Callable[[Coordinator], None]) -> None:
    coordinator = started()
    coordinator.plan()
    unchanged(coordinator)
    assert coordinator.pending is not None
    coordinator.pending[:] = 99
    coordinator.ages[:] = 99


def test_plans_are_copies(unchanged: Callable[[Coordinator], None]) -> None:
    coordinator = started()
    plan = coordinator.plan()
    unchanged(coordinator)
    plan[:] = 99


@pytest.mark.parametrize(
    "delivered",
    [
        [True, False],
        (1, 0),
        [1.0, 0.0],
        [np.True_, np.int64(0)],
        np.array([True, False]),
        np.array([1, 0], np.uint8),
        np.array([1.0, 0.0]),
        np.array([True, False], object),
        iter([True, False]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_outcomes_come_in_many_forms(delivered: Any) -> None:
    coordinator = started()
    before = coordinator.ages
    coordinator.plan()
    coordinator.observe(delivered)
    assert coordinator.ages.tolist() == [1, before[1] + 1]


def test_alarms_name_the_channel() -> None:
    coordinator = Coordinator("glr-cucb", n_clients=2, n_channels=3, seed=0)
    alarms = []
    for t in range(600):
        good = 2 if t < 300 else 0
        alarms.append(coordinator.observe(coordinator.plan() == good))
    found = [(t, channel) for t, channel in enumerate(alarms) if channel is not None]
    assert found
    assert all(t >= 300 and channel in (0, 2) for t, channel in found)


@pytest.mark.parametrize(("clients", "channels"), [(1, 1), (1, 4), (3, 3), (20, 20)])
@pytest.mark.parametrize("policy", POLICIES)
def test_one_client_and_as_many_clients_as_channels(
    policy: str, clients: int, channels: int
) -> None:
    coordinator = Coordinator(policy, clients, channels, seed=0)
    for t in range(60):
        plan = coordinator.plan()
        assert len(set(plan.tolist())) == clients
        assert set(plan.tolist()) <= set(range(channels))
        coordinator.observe((plan + t) % 3 == 0)
    assert coordinator.round == 60


# ---------------------------------------------------------------------------- unknown outcomes


@pytest.mark.parametrize("unknown", [None, -1, -1.0, np.int8(-1)])
@pytest.mark.parametrize("policy", POLICIES)
def test_with_an_unknown_outcome_the_age_is_the_expected_one(policy: str, unknown: Any) -> None:
    coordinator = started(policy)
    before = coordinator.ages
    plan = coordinator.plan()
    chance = np.clip(coordinator.channel_means[plan[0]], 0.05, 0.95)
    coordinator.observe([unknown, True])
    expected = chance + (1 - chance) * (before[0] + 1)
    assert coordinator.ages.tolist() == pytest.approx([expected, 1])
    assert coordinator.open_rounds == [21]


def learnt(coordinator: Coordinator, folder: Path) -> dict[str, Any]:
    held = content(coordinator, folder)
    return {k: v for k, v in held.items() if k.startswith("scheduler.")}


def test_the_learner_ignores_unknown_outcomes(tmp_path: Path) -> None:
    coordinator = started("cucb")
    plan = coordinator.plan()
    before = learnt(coordinator, tmp_path)
    coordinator.observe([None, None])
    assert learnt(coordinator, tmp_path) == before
    plan = coordinator.plan()
    coordinator.observe([None, True])
    pulls = np.array(learnt(coordinator, tmp_path)["scheduler.counts.pulls"])
    heard = pulls - before["scheduler.counts.pulls"]
    assert heard[plan[1]] == 1
    assert heard.sum() == 1


def test_exp3_skips_a_round_it_knows_only_in_part(tmp_path: Path) -> None:
    coordinator = started("m-exp3")
    coordinator.plan()
    weights = ("excess", "tree", "level", "members")
    before = learnt(coordinator, tmp_path)
    coordinator.observe([True, None])
    after = learnt(coordinator, tmp_path)
    for name in weights:
        assert after[f"scheduler.{name}"] == before[f"scheduler.{name}"]
    assert after["scheduler.counts.pulls"] != before["scheduler.counts.pulls"]


# --------------------------------------------------------------------------------- out of order


def test_observing_before_planning(unchanged: Callable[[Coordinator], None]) -> None:
    fresh = Coordinator("cucb", 2, 4)
    unchanged(fresh)
    with refused(SequenceError, r"nothing to observe: call plan\(\) for round 1"):
        fresh.observe([True, True])


def test_observing_twice(unchanged: Callable[[Coordinator], None]) -> None:
    coordinator = started(rounds=3)
    unchanged(coordinator)
    with refused(SequenceError, r"nothing to observe: call plan\(\) for round 4"):
        coordinator.observe([True, True])


def test_planning_twice_leaves_the_first_plan_open() -> None:
    coordinator, twin = started(rounds=3), started(rounds=3)
    plan = coordinator.plan()
    assert (coordinator.round, coordinator.open_rounds) == (3, [4])
    second = coordinator.plan()
    assert (coordinator.round, coordinator.open_rounds) == (4, [4, 5])
    assert coordinator.pending is not None
    np.testing.assert_array_equal(coordinator.pending, second)
    coordinator.observe(plan < 2, round=4)
    coordinator.observe([True, False])
    for outcome in (twin.plan() < 2, [True, False]):
        if twin.pending is None:
            twin.plan()
        twin.observe(outcome)
    assert coordinator.ages.tolist() == twin.ages.tolist()
    assert coordinator.open_rounds == []


# -------------------------------------------------------------------------------- bad outcomes

WRONG_LENGTH: list[Any] = [[], [True], [True, False, True], np.array([]), np.array([1, 0, 1])]
WRONG_VALUE: list[Any] = [
    [True, 2],
    [True, -2],
    [0.5, 1],
    [math.nan, 1],
    np.array([math.nan, 1.0]),
    [math.inf, 0],
    ["yes", "no"],
    ["1", "0"],
    "10",
    b"\x01\x00",
    {0: True, 1: False},
    {True, False},
    True,
    None,
    3,
    np.array(True),
    [[True, False]],
    np.array([[True, False], [True, False]]),
    np.zeros((50, 50)),
    [[], []],
    [object(), object()],
]


@pytest.mark.parametrize("policy", POLICIES)
def test_wrong_lengths(policy: str, unchanged: Callable[[Coordinator], None]) -> None:
    coordinator = started(policy)
    coordinator.plan()
    unchanged(coordinator)
    for delivered in WRONG_LENGTH:
        with refused(
            ParameterError,
            f"delivered must have one entry per client, 2, got {len(delivered)}",
        ):
            coordinator.observe(delivered)


@pytest.mark.parametrize("policy", POLICIES)
def test_wrong_values(policy: str, unchanged: Callable[[Coordinator], None]) -> None:
    coordinator = started(policy)
    coordinator.plan()
    unchanged(coordinator)
    for delivered in WRONG_VALUE:
        with refused(
            ParameterError,
            r"delivered must hold True, False or None \(unknown\) per client, got ",
        ):
            coordinator.observe(delivered)


# ---------------------------------------------------------------------------------- decision log


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
        Coordinator("cucb", 2, 4, log=3)  # type: ignore[arg-type]


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


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux only")  # noqa: PTH110
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


# ---------------------------------------------------------------------------------------- threads


def test_several_threads_plan_observe_and_save(tmp_path: Path) -> None:
    """No call fails, no round is lost, and what is saved meanwhile is whole."""
    each = 60
    coordinator = Coordinator("glr-cucb", n_clients=3, n_channels=8, seed=0, max_delay=4 * each)
    stop, loaded = threading.Event(), []

    def play() -> None:
        for _ in range(each):
            coordinator.plan()
            with contextlib.suppress(SequenceError):  # another thread knows all of the latest plan
                coordinator.observe([True, False, None])

    def hear_late() -> None:
        while not stop.is_set():
            for when in coordinator.open_rounds:
                coordinator.observe([True, False, False], round=when)
            time.sleep(0.001)  # the lock is not fair

    def save(path: Path) -> None:
        while not stop.is_set():
            coordinator.save(path)
            again = Coordinator.load(path)
            assert again.round + (again.pending is not None) >= max(again.open_rounds, default=0)
            loaded.append(again.round)
            time.sleep(0.001)

    coordinator.observe(coordinator.plan() >= 0)
    with ThreadPoolExecutor(7) as pool:
        others = [pool.submit(save, tmp_path / f"{number}.npz") for number in range(2)]
        others.append(pool.submit(hear_late))
        players = [pool.submit(play) for _ in range(4)]
        try:
            for player in players:
                player.result()
        finally:
            stop.set()
        for other in others:
            other.result()
    assert coordinator.round + (coordinator.pending is not None) == 1 + 4 * each
    assert len(set(loaded)) > 1
    assert np.isfinite(coordinator.ages).all()


@pytest.mark.parametrize("name", ["n_clients", "n_channels", "seed", "run", "horizon", "policy"])
def test_sizes_are_read_only(name: str) -> None:
    coordinator = Coordinator("cucb", n_clients=2, n_channels=5)
    with pytest.raises(AttributeError):
        setattr(coordinator, name, 3)
    coordinator.plan()
    coordinator.observe([True, False])


def test_a_copy_goes_on_by_itself() -> None:
    coordinator = Coordinator("thompson", n_clients=2, n_channels=5, seed=4)
    coordinator.plan()
    for twin in (copy.deepcopy(coordinator), pickle.loads(pickle.dumps(coordinator))):
        assert twin.pending.tolist() == coordinator.pending.tolist()
        twin.observe([True, True])
        assert twin.round == 1
    assert coordinator.round == 0
