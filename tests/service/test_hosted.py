"""A coordinator in service: answers are given once, kept, and survive a crash at any step."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from freshband import Coordinator
from freshband.errors import FileError, ParameterError, SequenceError, UnknownNameError
from freshband.service import hosted as module
from freshband.service.calls import CALLS, SETTINGS, view
from freshband.service.hosted import Hosted

SETUP = {"policy": "cucb", "n_clients": 3, "n_channels": 4, "seed": 7}


def outcome(t: int) -> list[bool | None]:
    draws = np.random.default_rng(t).random(3)
    return [None if draw < 0.1 else bool(draw < 0.7) for draw in draws]


def play(hosted: Hosted, rounds: int, first: int = 1) -> list[bytes]:
    """Play rounds, each planned together with the outcomes of the one before."""
    answers = []
    for t in range(first, first + rounds):
        body = {"round": t} if t == 1 else {"round": t, "delivered": outcome(t - 1)}
        answers.append(hosted.answer("plan", body))
        hosted.settle()
    return answers


def same_state(one: Hosted, other: Hosted | Coordinator) -> bool:
    right = other if isinstance(other, Coordinator) else other.coordinator
    return one.coordinator.to_bytes() == right.to_bytes()


def dropped(hosted: Hosted) -> None:
    """Forget it as a killed process does: nothing is saved, the system takes back its locks."""
    hosted._journal.close()  # type: ignore[union-attr]
    hosted._lock.release()


def test_requests_do_what_the_calls_do() -> None:
    hosted, coordinator = Hosted(SETUP), Coordinator("cucb", 3, 4, 7)
    present, available = [True, False, True], [True, True, False, True]
    body: dict[str, Any] = {"round": 1, "present": present, "available": available}
    planned = json.loads(hosted.answer("plan", body))
    assert planned["channels"] == coordinator.plan(present=present, available=available).tolist()
    hosted.answer("observe", {"round": 1, "delivered": [None], "clients": [0]})
    coordinator.observe([None], clients=[0])
    joined = json.loads(hosted.answer("join", {"client": "Eve", "weight": 2.0}))
    assert joined["number"] == coordinator.join("Eve", weight=2.0) == 3
    hosted.answer("leave", {"client": 1})
    coordinator.leave(1)
    assert (
        json.loads(hosted.answer("plan", {"round": 2}))["channels"] == coordinator.plan().tolist()
    )
    late = {"round": 1, "delivered": [False, None, True, None], "teaches": [False, True, True, 1]}
    hosted.answer("observe", late)
    coordinator.observe(late["delivered"], round=1, teaches=late["teaches"])  # type: ignore[arg-type]
    assert same_state(hosted, coordinator)


def test_contributions_reach_the_matching() -> None:
    hosted = Hosted({**SETUP, "policy": "cucb+priority"})
    coordinator = Coordinator("cucb+priority", 3, 4, 7)
    with pytest.raises(ParameterError, match="ranks clients by their contributions"):
        hosted.answer("plan", {"round": 1})
    answer = hosted.answer("plan", {"round": 1, "contributions": [0.1, 0.5, 0.2]})
    assert json.loads(answer)["channels"] == coordinator.plan([0.1, 0.5, 0.2]).tolist()


def test_a_repeated_request_is_answered_and_not_executed() -> None:
    hosted = Hosted(SETUP)
    play(hosted, 5)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("plan", {"round": 6, "delivered": outcome(5)}),
        ("observe", {"round": 6, "delivered": [True, None, False]}),
        ("join", {"client": "Eve"}),
        ("leave", {"client": "Eve"}),
        ("join", {"client": "Eve"}),  # once more, by intent
    ]
    for call, body in calls:
        answer = hosted.answer(call, body)
        after = hosted.coordinator.to_bytes()
        again = hosted.answer(call, dict(reversed(body.items())))
        assert again == answer
        assert hosted.coordinator.to_bytes() == after
    assert hosted.repeated == len(calls)
    assert hosted.executed == 5 + len(calls)


@pytest.mark.parametrize(
    ("call", "body", "error", "text"),
    [
        ("plan", {"round": 3}, SequenceError, "round 3 is planned already; the next is 4"),
        ("plan", {"round": 5}, SequenceError, "round 5 cannot be planned yet; the next is 4"),
        ("plan", {"round": "4"}, ParameterError, "round must be a whole number >= 1, got '4'"),
        ("plan", {}, ParameterError, "plan needs a value for 'round'"),
        ("plan", [4], ParameterError, r"plan takes a JSON object, got \[4\]"),
        ("plan", {"rund": 4}, UnknownNameError, "no field 'rund'; did you mean 'round'"),
        ("plan", {"round": 4, "clients": [0]}, ParameterError, "delivered, which is missing"),
        ("plan", {"round": 4, "delivered": [True] * 3, "present": [1]}, ParameterError, "present"),
        ("plan", {"round": 4, "delivered": [True] * 2}, ParameterError, "one entry per client, 3"),
        (
            "plan",
            {"round": 4, "present": [[True], [True, False]]},
            ParameterError,
            "present must hold",
        ),
        ("plan", {"round": 4, "available": "yes"}, ParameterError, "available must hold"),
        ("observe", {"round": 9, "delivered": [True] * 3}, SequenceError, "not planned yet"),
        ("observe", {"round": 3, "delivered": [2] * 3}, ParameterError, "must hold True, False"),
        ("observe", {"round": 3}, ParameterError, "needs a value for 'delivered'"),
        ("join", {"client": 2}, ParameterError, "there is a client 2 already"),
        ("join", {"client": None}, ParameterError, "needs a value for 'client'"),
        (
            "join",
            {"client": "Eve", "weight": -1},
            ParameterError,
            "must be a finite number > 0",
        ),
        ("leave", {"client": "Eve"}, ParameterError, "there is no client 'Eve'"),
    ],
)
def test_a_wrong_request_changes_nothing(
    call: str, body: Any, error: type[Exception], text: str, tmp_path: Path
) -> None:
    hosted = Hosted(SETUP, tmp_path / "state.npz")
    play(hosted, 3)
    before, lines = hosted.coordinator.to_bytes(), hosted._journal.lines  # type: ignore[union-attr]
    with pytest.raises(error, match=text) as caught:
        hosted.answer(call, body)
    assert "\n" not in str(caught.value)
    assert hosted.coordinator.to_bytes() == before
    assert hosted._journal.lines == lines  # type: ignore[union-attr]


def test_it_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    reference = Hosted(SETUP)
    expected = play(reference, 30)
    path, found = tmp_path / "state.npz", []
    for first in range(1, 31, 6):  # killed every six rounds
        hosted = Hosted(SETUP, path)
        if first > 1:
            body = {"round": first - 1, "delivered": outcome(first - 2)}
            assert hosted.answer("plan", body) == expected[first - 2]  # its answer may be lost
            assert hosted.repeated == 1
        found += play(hosted, 6, first)
        dropped(hosted)
    assert found == expected
    last = Hosted(SETUP, path)
    assert same_state(last, reference)
    last.close()
    assert Coordinator.load(path).to_bytes() == reference.coordinator.to_bytes()  # a plain state


@pytest.mark.parametrize("step", range(4))
def test_a_crash_in_each_step_of_a_snapshot_loses_nothing(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = Hosted(SETUP)
    play(reference, 9)
    hosted = Hosted(SETUP, tmp_path / "state.npz")
    play(hosted, 9)
    crash_at(step, hosted, monkeypatch)
    with pytest.raises(_CrashError):
        hosted.snapshot()
    monkeypatch.undo()
    dropped(hosted)
    after = Hosted(SETUP, tmp_path / "state.npz")
    assert same_state(after, reference)
    body = {"round": 9, "delivered": outcome(8)}
    assert after.answer("plan", body) == reference.answer("plan", body)
    assert after.repeated == 1
    assert play(after, 3, 10) == play(reference, 3, 10)


class _CrashError(Exception):
    pass


def crash_at(step: int, hosted: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Crash after so many steps: the line, its sync, the state, the new journal."""
    steps: list[str] = []

    def counting(name: str, real: Callable[..., None]) -> Callable[..., None]:
        def run(*arguments: Any) -> None:
            if len(steps) == step:
                raise _CrashError
            steps.append(name)
            real(*arguments)

        return run

    journal = hosted._journal
    assert journal is not None
    for name in ("append", "sync", "begin"):
        monkeypatch.setattr(journal, name, counting(name, getattr(journal, name)))
    monkeypatch.setattr(module, "write_whole", counting("state", module.write_whole))


def test_snapshots_are_made_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LINES", 5)
    reference, hosted = Hosted(SETUP), Hosted(SETUP, tmp_path / "state.npz")
    assert play(hosted, 17) == play(reference, 17)
    assert hosted.snapshots == 3
    dropped(hosted)
    assert same_state(Hosted(SETUP, tmp_path / "state.npz"), reference)


def test_without_room_on_the_disk_nothing_is_learnt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference, hosted = Hosted(SETUP), Hosted(SETUP, tmp_path / "state.npz")
    play(reference, 4)
    play(hosted, 4)
    body = {"round": 5, "delivered": outcome(4)}

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("freshband.service.journal.os.write", full)
        with pytest.raises(FileError, match="No space left on device"):
            hosted.answer("plan", body)
    assert same_state(hosted, reference)
    with monkeypatch.context() as patch:
        patch.setattr("freshband.service.journal.os.fdatasync", full)
        hosted.answer("plan", body)
        with pytest.raises(FileError, match="No space left on device"):
            hosted.settle()
    assert hosted.answer("plan", body) == reference.answer("plan", body)
    assert same_state(hosted, reference)


def test_an_answer_that_is_repeated_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the first one was written but not synced, by a process that failed or was killed."""
    path, journal, synced = tmp_path / "state.npz", tmp_path / "state.npz.journal", []
    hosted = Hosted(SETUP, path)

    def sync(handle: int) -> None:
        synced.append(os.fstat(handle).st_size)

    def fail(handle: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("freshband.service.journal.os.fdatasync", sync)
    hosted.answer("plan", {"round": 1})  # and killed before it settles
    assert not synced
    dropped(hosted)
    hosted = Hosted(SETUP, path)
    assert synced == [journal.stat().st_size]
    with monkeypatch.context() as patch:
        patch.setattr("freshband.service.journal.os.fdatasync", fail)
        hosted.answer("plan", {"round": 2})
        with pytest.raises(FileError, match="Input/output error"):
            hosted.settle()
    before = journal.stat().st_ino
    hosted.answer("plan", {"round": 2})
    assert journal.stat().st_ino != before  # written again: a second sync proves nothing


def test_an_empty_journal_is_named(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    Hosted(SETUP, path).close()
    (tmp_path / "state.npz.journal").write_bytes(b"")
    with pytest.raises(FileError, match=r"state.npz.journal is damaged: it is empty"):
        Hosted.reopened(path)


def test_an_unfinished_line_is_cut_off_and_a_changed_one_refused(tmp_path: Path) -> None:
    path, journal = tmp_path / "state.npz", tmp_path / "state.npz.journal"
    reference, hosted = Hosted(SETUP), Hosted(SETUP, path)
    play(reference, 4)
    play(hosted, 4)
    dropped(hosted)
    whole = journal.read_bytes()
    journal.write_bytes(whole + whole.splitlines()[-1][:50])
    again = Hosted(SETUP, path)
    assert same_state(again, reference)
    assert journal.read_bytes() == whole
    dropped(again)
    lines = whole.splitlines(keepends=True)
    for broken in (whole.replace(b"true", b"null", 1), b"".join([*lines[:2], *lines[3:]])):
        journal.write_bytes(broken)
        with pytest.raises(FileError, match=r"state.npz.journal is damaged in line \d"):
            Hosted(SETUP, path)


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    for name in "ab":
        hosted = Hosted({**SETUP, "seed": ord(name)}, tmp_path / name)
        play(hosted, 3)
        hosted.close()
    shutil.copy(tmp_path / "a", tmp_path / "b")
    with pytest.raises(FileError, match="does not belong to"):
        Hosted({**SETUP, "seed": ord("b")}, tmp_path / "b")
    play(again := Hosted({**SETUP, "seed": ord("a")}, tmp_path / "a"), 1, 4)
    dropped(again)
    (tmp_path / "a").unlink()
    with pytest.raises(FileError, match="is missing, but not its journal"):
        Hosted({**SETUP, "seed": ord("a")}, tmp_path / "a")


def test_a_replay_with_another_answer_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosted = Hosted(SETUP, tmp_path / "state.npz")
    play(hosted, 3)
    dropped(hosted)
    real = CALLS["plan"].run
    other = {**vars(CALLS["plan"]), "run": lambda c, b: {**real(c, b), "alarm": 1}}
    monkeypatch.setitem(module.CALLS, "plan", type(CALLS["plan"])(**other))
    with pytest.raises(FileError, match="line 2: executed again, the answer is"):
        Hosted(SETUP, tmp_path / "state.npz")


def test_a_key_seals_state_and_journal(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    hosted = Hosted(SETUP, path, b"secret")
    play(hosted, 3)
    dropped(hosted)
    for key in (None, b"another"):
        with pytest.raises(FileError, match="damaged in line 1, or sealed with another key"):
            Hosted(SETUP, path, key)
    assert Hosted(SETUP, path, b"secret").coordinator.round == 2


def test_one_process_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    hosted = Hosted(SETUP, path)
    with pytest.raises(FileError, match=r"state.npz is served by another process"):
        Hosted(SETUP, path)
    hosted.close()
    Hosted(SETUP, path).close()


def test_settings_must_be_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    Hosted(SETUP, path).close()
    for other in ({"n_clients": 4}, {"policy": "random"}, {"silence": "loss"}):
        with pytest.raises(ParameterError, match=f"holds a coordinator with {next(iter(other))}="):
            Hosted({**SETUP, **other}, path)
    Hosted({**SETUP, "silence": "random", "weights": None}, path).close()  # the defaults


def test_a_saved_coordinator_is_taken_over(tmp_path: Path) -> None:
    coordinator = Coordinator("cucb", 3, 4, 7)
    coordinator.plan()
    coordinator.save(tmp_path / "state.npz")
    with pytest.raises(ParameterError, match="n_clients=3, got 5"):
        Hosted({**SETUP, "n_clients": 5}, tmp_path / "state.npz")
    hosted = Hosted(SETUP, tmp_path / "state.npz")
    assert play(hosted, 1, 2) == play(hosted, 1, 2)
    assert hosted.coordinator.round == 1


def test_looking_changes_nothing_and_is_json() -> None:
    hosted = Hosted({"policy": "bayes", "n_clients": 3, "n_channels": 4})
    play(hosted, 5)
    hosted.answer("leave", {"client": 0})
    before = hosted.coordinator.to_bytes()
    shown = json.loads(json.dumps(view(hosted.coordinator), allow_nan=False))
    assert hosted.coordinator.to_bytes() == before
    assert shown["ages"][0] is None
    assert shown["clients"] == [None, 1, 2]
    assert (shown["round"], shown["planned"], len(shown["pending"])) == (4, 5, 3)
    assert len(shown["beliefs"]["rate"]) == 4
    assert Hosted(SETUP).coordinator.beliefs is None


def test_all_settings_of_a_coordinator_can_be_given() -> None:
    import inspect

    parameters = inspect.signature(Coordinator).parameters
    assert set(SETTINGS) == set(parameters) - {"log", "scheduler", "warm_up"}
    for name, field in SETTINGS.items():
        if "default" in field.schema:
            assert parameters[name].default == field.schema["default"]
