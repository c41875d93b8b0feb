"""The coordinator: what it promises, and that misuse gets a clear error and changes nothing."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import math
import os
import pickle
import threading
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from freshband import Coordinator
from freshband._policy import parse_policy
from freshband.errors import FileError, ParameterError, SequenceError, UnknownNameError
from freshband.schedulers.base import registry
from tests.simulation.refusing import refused

POLICIES = ["cucb", "m-exp3"]  # one that ignores single unknown outcomes, one that skips the round


def started(policy: str = "cucb", rounds: int = 20, **options: Any) -> Coordinator:
    coordinator = Coordinator(policy, n_clients=2, n_channels=4, seed=1, **options)
    for _ in range(rounds):
        coordinator.observe(coordinator.plan() < 2)  # channels 0 and 1 deliver
    return coordinator


def content(coordinator: Coordinator, folder: Path) -> dict[str, Any]:
    """Everything a coordinator knows, by way of its file."""
    path = folder / "content.npz"
    coordinator.save(path)
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name].tolist() for name in archive.files}


@pytest.fixture
def unchanged(tmp_path: Path) -> Iterator[Callable[[Coordinator], None]]:
    """Watch coordinators: nothing about them may have changed by the end of the test."""
    watched: list[tuple[Coordinator, dict[str, Any], Any]] = []

    def watch(coordinator: Coordinator) -> None:
        before = content(coordinator, tmp_path)
        watched.append((coordinator, before, Coordinator.load(tmp_path / "content.npz")))

    yield watch
    for coordinator, before, twin in watched:
        assert content(coordinator, tmp_path) == before
        for _ in range(5):  # nor does anything behave differently
            plans = [c.plan() if c.pending is None else c.pending for c in (coordinator, twin)]
            np.testing.assert_array_equal(*plans)
            assert coordinator.observe([True, False]) == twin.observe([True, False])


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
def test_with_an_unknown_outcome_the_age_goes_on(policy: str, unknown: Any) -> None:
    coordinator = started(policy)
    before = coordinator.ages
    coordinator.plan()
    coordinator.observe([unknown, True])
    assert coordinator.ages.tolist() == [before[0] + 1, 1]


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


def test_planning_twice(unchanged: Callable[[Coordinator], None]) -> None:
    coordinator = started(rounds=3)
    coordinator.plan()
    unchanged(coordinator)
    with refused(SequenceError, r"round 4 is already planned \(see \.pending\): observe it first"):
        coordinator.plan()


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


# ------------------------------------------------------------------------------ bad parameters

NOT_A_COUNT: list[Any] = [0, -1, 1.5, math.nan, math.inf, True, np.True_, "2", None, [2], 1j]


@pytest.mark.parametrize("name", ["n_clients", "n_channels", "horizon"])
def test_counts_must_be_whole_and_positive(name: str) -> None:
    for value in NOT_A_COUNT:
        if name == "horizon" and value is None:
            continue  # no horizon
        settings: dict[str, Any] = {"n_clients": 1, "n_channels": 5, name: value}
        with refused(ParameterError, rf"{name} must be a whole number >= 1, got "):
            Coordinator("cucb", **settings)
    with refused(ParameterError, rf"{name} must be a whole number in \[1, 1000000000000\], got"):
        Coordinator("cucb", **{"n_clients": 1, "n_channels": 5, name: 10**20})


def test_counts_may_be_numpys() -> None:
    coordinator = Coordinator("cucb", np.int64(2), np.uint8(4), np.int32(3), horizon=np.int64(9))
    assert (coordinator.n_clients, coordinator.n_channels) == (2, 4)
    assert (coordinator.seed, coordinator.horizon) == (3, 9)


def test_more_clients_than_channels() -> None:
    with refused(ParameterError, "n_channels must be >= n_clients = 4, got 3"):
        Coordinator("cucb", n_clients=4, n_channels=3)


def test_seeds_must_be_whole_numbers() -> None:
    bad: list[Any] = [-1, 1.0, 0.5, math.nan, True, "0", None, [1], -(10**5000)]
    for seed in bad:
        with refused(ParameterError, "seed must be an integer >= 0, got "):
            Coordinator("cucb", 2, 4, seed=seed)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("glr-cubc", "unknown scheduler 'glr-cubc'; did you mean 'glr-cucb'"),
        ("nonsense", "unknown scheduler 'nonsense'; known: bayes, cucb, "),
        ("glr-cucb:papr", "glr-cucb has no preset 'papr'; did you mean 'paper'"),
        ("cucb+agee", r"unknown token '\+agee' in policy 'cucb\+agee'; did you mean 'age'"),
    ],
)
def test_unknown_names(policy: str, message: str) -> None:
    with refused(UnknownNameError, message):
        Coordinator(policy, 2, 4)


@pytest.mark.parametrize("policy", ["", " ", None, 3, ["cucb"], b"cucb"])
def test_a_policy_must_be_text(policy: Any) -> None:
    with refused(ParameterError, "policy must be text like 'glr-cucb:paper"):
        Coordinator(policy, 2, 4)


def test_the_policy_may_be_given_by_its_old_keyword() -> None:
    assert Coordinator(scheduler="cucb+rotate").policy.name == "cucb+rotate"
    assert Coordinator(policy="cucb+rotate").policy.matching_name == "rotate"
    with refused(ParameterError, "scheduler is the old name of policy"):
        Coordinator("cucb", scheduler="random")


@pytest.mark.parametrize("policy", ["oracle", "oracle:csi", "oracle:fixed+aa"])
def test_oracles_are_refused(policy: str) -> None:
    with refused(ParameterError, "policy must learn from acknowledgements; 'oracle' sees"):
        Coordinator(policy, 2, 4)


def test_paper_settings_ask_for_the_horizon() -> None:
    message = r"glr-cucb with alpha='paper' needs the number of rounds in advance: pass horizon=T"
    with refused(ParameterError, message):
        Coordinator("glr-cucb:paper", 2, 4)
    assert Coordinator("glr-cucb:paper", 2, 4, horizon=100).horizon == 100


@pytest.mark.parametrize("options", [3, "delta=1", [("delta", 0.1)], {3: 0.1}])
def test_options_must_be_a_mapping(options: Any) -> None:
    with refused(ParameterError, "options must map names to values, got "):
        Coordinator("glr-cucb", 2, 4, options=options)


def test_options_are_checked() -> None:
    with refused(ParameterError, r"delta must be a number in \(0, 1\), got 2"):
        Coordinator("glr-cucb", 2, 4, options={"delta": 2})
    with refused(UnknownNameError, "GlrCucb has no parameter 'dleta'; did you mean 'delta'"):
        Coordinator("glr-cucb", 2, 4, options={"dleta": 0.1})


def test_options_next_to_a_ready_policy_are_not_dropped() -> None:
    ready = parse_policy("glr-cucb", {"delta": 0.01})
    assert Coordinator(ready, 2, 4).policy is ready
    with refused(ParameterError, r"options need a policy given by name, got \['delta'\] with"):
        Coordinator(ready, 2, 4, options={"delta": 0.1})


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
    assert header["format"] == "freshband coordinator 1"
    assert (header["policy"], header["options"], header["round"]) == ("cucb", {}, 20)
    assert len(str(held.pop("checksum"))) == 64
    assert {name.split(".")[0] for name in held} == {"desk", "scheduler", "matching"}
    assert all(array.dtype.kind in "biuf" for array in held.values())


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
    held["desk.ages"] = held["desk.ages"] + 1
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
    held["desk.ages"] = np.array([Trap(), Trap()], object)
    np.savez(path, allow_pickle=True, **held)
    with refused(FileError, "is damaged or not a coordinator's file"):
        Coordinator.load(path)
    path.write_bytes(pickle.dumps(Trap()))
    with refused(FileError, "is damaged or not a coordinator's file"):
        Coordinator.load(path)
    assert not Trap.sprung


def test_files_of_a_newer_version(path: Path) -> None:
    rewrite(path, lambda header: {**header, "format": "freshband coordinator 2"})
    with refused(
        FileError, "must have the format 'freshband coordinator 1', got 'freshband coordinator 2'"
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
        (lambda header: {**header, "policy": "m-exp3"}, None, "does not fit this problem"),
        (lambda header: {**header, "policy": "oracle"}, None, "'oracle' sees the channels"),
        (lambda header: {**header, "n_clients": 0}, None, "n_clients must be a whole number"),
        (lambda header: {**header, "options": {"x": 1}}, None, "Cucb has no parameter 'x'"),
        (lambda header: {**header, "rng": {"state": 1}}, None, "."),
        (lambda header: header, "desk.ages", "does not fit this problem at 'desk.ages'"),
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
            {"round": t + 1, "assignment": plan.tolist(), "outcome": outcome, "alarm": alarm}
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


def test_a_bad_request_makes_no_log(tmp_path: Path, path: Path) -> None:
    with pytest.raises(UnknownNameError):
        Coordinator("no-such", 2, 4, log=tmp_path / "log")
    path.write_bytes(b"nonsense")
    with pytest.raises(FileError):
        Coordinator.load(path, log=tmp_path / "log")
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
    assert coordinator.round == 1  # learnt, as documented: only its line is lost


# ---------------------------------------------------------------------------------------- threads


def test_several_threads_play_whole_rounds(tmp_path: Path) -> None:
    """Every plan is observed once, whichever threads call; what is saved meanwhile is whole."""
    coordinator = Coordinator("glr-cucb", n_clients=3, n_channels=8, seed=0)
    observed, loaded = [], []
    stop = threading.Event()

    def play() -> None:
        while len(observed) < 2000:
            with contextlib.suppress(SequenceError):  # another thread was faster
                coordinator.plan()
            try:
                coordinator.observe([True, False, None])
                observed.append(1)
            except SequenceError:
                continue

    def save(path: Path) -> None:
        while not stop.is_set():
            coordinator.save(path)
            loaded.append(Coordinator.load(path).round)
            assert coordinator.ages[0] == 1

    players = [threading.Thread(target=play) for _ in range(4)]
    coordinator.observe(coordinator.plan() >= 0)
    with ThreadPoolExecutor(2) as pool:
        savers = [pool.submit(save, tmp_path / f"{number}.npz") for number in range(2)]
        for player in players:
            player.start()
        for player in players:
            player.join()
        stop.set()
        for saver in savers:
            saver.result()
    assert coordinator.round == 1 + len(observed)
    assert len(set(loaded)) > 1


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
