from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from freshband.errors import FileError, ParameterError, SequenceError
from freshband.federated import Dataset, build_model, load_dataset, split_samples
from freshband.federated._checkpoint import load_checkpoint, save_checkpoint
from freshband.federated.records import RoundRecord
from freshband.federated.result import load_training
from freshband.federated.runs import Run, resume_run, start_run
from freshband.federated.settings import Training
from tests.federated.killed import Kill, final_state, play_killed, same_bits, same_records
from tests.federated.test_checkpoint import largest_file, on_small_disk

TINY: dict[str, Any] = {
    "model": "mlp",
    "model_options": {"hidden": [8]},
    "clients": 4,
    "rounds": 14,
    "local_steps": 2,
    "batch_size": 8,
    "scheduler": "glr-cucb",
    "seed": 3,
    "path": "threads",
    "workers": 1,
}
PRIORITY = {**TINY, "matching": "priority", "weights": "contribution"}


def tiny(**changes: Any) -> Training:
    return Training(**{**TINY, **changes})


def whole(settings: dict[str, Any], out: Path, every: int = 3) -> Run:
    with start_run(Training(**settings), out, checkpoint_every=every) as run:
        for _ in run:
            pass
    return run


def assert_same_run(one: Path, other: Path) -> None:
    """Every record, parameter and number of the results, bit for bit, but the time they took."""
    first, second = resume_run(one), resume_run(other)
    assert first.finished
    assert second.finished
    assert same_records(first.records, second.records)
    assert same_bits(final_state(one), final_state(other))
    results = [load_training(folder / "result.nc").drop_vars("seconds") for folder in (one, other)]
    for result in results:
        del result.attrs["seconds"]
    assert results[0].identical(results[1])


# ------------------------------------------------------------------------------ being killed

KILLS: dict[str, tuple[dict[str, Any], list[Kill]]] = {
    "async": (
        PRIORITY,
        [("write", 2), ("round", 2), ("write", 5), ("write", 9), ("train", 8), ("round", 12)],
    ),
    "async-two-workers": ({**PRIORITY, "workers": 2}, [("train", 5), ("write", 11), ("round", 13)]),
    "stacked": ({**PRIORITY, "path": "stacked", "workers": 2}, [("train", 6), ("write", 5)]),
    "fedbuff": (
        {**TINY, "algorithm": "fedbuff", "buffer_size": 3},
        [("round", 7), ("write", 3), ("train", 11)],
    ),
    "fedce": (
        {**PRIORITY, "contribution": "fedce", "loo": "buffer"},
        [("train", 1), ("round", 4), ("write", 7)],
    ),
    "averaged": ({**TINY, "served": "average"}, [("write", 3), ("round", 8), ("train", 11)]),
    "eager": ({**TINY, "local_rounds": 3}, [("train", 4), ("round", 9), ("write", 2)]),
    "fedasync": ({**TINY, "algorithm": "fedasync"}, [("round", 6), ("write", 4)]),
    "fedavg": ({**TINY, "algorithm": "fedavg", "eval_every": 3}, [("train", 10), ("round", 13)]),
    "float64": (
        {**TINY, "precision": "float64", "scheduler": "m-exp3", "clip_norm": 0.1},
        [("round", 5), ("write", 6)],
    ),
}


@pytest.mark.parametrize("name", KILLS)
def test_killed_and_resumed_equals_never_interrupted(tmp_path: Path, name: str) -> None:
    settings, kills = KILLS[name]
    for kill in kills:
        assert play_killed(settings, tmp_path / "killed", kill, every=3), kill
    assert not play_killed(settings, tmp_path / "killed", None, every=3)
    whole({**settings, "workers": 1}, tmp_path / "whole")
    if settings["workers"] == 1:
        assert_same_run(tmp_path / "killed", tmp_path / "whole")
    else:  # the settings differ, the numbers must not
        assert same_bits(final_state(tmp_path / "killed"), final_state(tmp_path / "whole"))
        first, other = resume_run(tmp_path / "killed"), resume_run(tmp_path / "whole")
        assert same_records(first.records, other.records)
    left = [path.name for path in tmp_path.rglob("*") if path.name.startswith(".")]
    assert left == []


@pytest.mark.slow
def test_killed_at_every_step_of_writing(tmp_path: Path) -> None:
    settings = {**PRIORITY, "rounds": 3}
    whole(settings, tmp_path / "whole", every=2)
    step = 1
    while play_killed(settings, tmp_path / str(step), ("write", step), every=2):
        out = tmp_path / str(step)
        if (out / "run.json").exists():
            list(resume_run(out))
        else:
            whole(settings, out, every=2)
        assert_same_run(out, tmp_path / "whole")
        step += 1
    assert step > 30


def test_killed_again_and_again_at_random(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    out, kills, was_killed = tmp_path / "killed", 0, True
    while was_killed and kills < 40:
        kind = str(rng.choice(["round", "train", "write"]))
        place = int(rng.integers(1, 12 if kind == "write" else 4))
        if kind != "write" and (out / "run.json").exists():
            place += resume_run(out).round
        was_killed = play_killed(PRIORITY, out, (kind, place), every=2)
        kills += was_killed
    assert 5 < kills < 40
    whole(PRIORITY, tmp_path / "whole", every=2)
    assert_same_run(out, tmp_path / "whole")


PROGRAM = """
import sys
from freshband.federated.runs import resume_run, start_run
from freshband.federated.settings import Training

out, settings = sys.argv[1], sys.argv[2]
run = start_run(Training.model_validate_json(settings), out, checkpoint_every=2) if settings else (
    resume_run(out)
)
for record in run:
    print(record.round, flush=True)
"""


@pytest.mark.slow
def test_killed_from_outside_in_processes_that_share_nothing(tmp_path: Path) -> None:
    settings = Training(**{**PRIORITY, "rounds": 200})
    text = settings.model_dump_json()
    for seed, wait_for in ((1, 5), (2, 40), (3, 200)):
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / "killed"), text]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONHASHSEED": str(seed)}
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if int(line) == wait_for and wait_for < 200:
                    process.send_signal(signal.SIGKILL)
        text = ""
    assert process.returncode == 0
    whole(settings.model_dump(mode="json"), tmp_path / "whole", every=2)
    assert_same_run(tmp_path / "killed", tmp_path / "whole")


# ------------------------------------------------------------------------------ stopping


@pytest.mark.parametrize("place", [1, 3, 4, 14])
def test_stop_ends_after_the_round_with_a_checkpoint(tmp_path: Path, place: int) -> None:
    run = start_run(tiny(), tmp_path / "a", checkpoint_every=3)
    for record in run:
        if record.round == place:
            run.stop()
    assert run.stopped
    assert run.round == run.saved_round == place
    assert load_checkpoint(tmp_path / "a" / "checkpoints").round == place
    resumed = resume_run(tmp_path / "a")
    assert [record.round for record in resumed] == list(range(place + 1, 15))
    assert not resumed.stopped
    whole(TINY, tmp_path / "b")
    assert_same_run(tmp_path / "a", tmp_path / "b")


def test_stop_from_a_signal_handler(tmp_path: Path) -> None:
    run = start_run(tiny(), tmp_path / "a")
    before = signal.signal(signal.SIGINT, lambda *_: run.stop())
    try:
        for record in run:
            if record.round == 2:
                signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert load_checkpoint(tmp_path / "a" / "checkpoints").round == 2


def test_stop_before_the_loop_plays_nothing_and_the_next_loop_goes_on(tmp_path: Path) -> None:
    run = start_run(tiny(), tmp_path / "a")
    run.stop()
    assert list(run) == []
    assert run.stopped
    assert len(list(run)) == 14
    assert run.finished
    assert not run.stopped


def test_leaving_the_loop_saves_and_it_can_be_taken_up_again(tmp_path: Path) -> None:
    run = start_run(tiny(), tmp_path / "a", checkpoint_every=5)
    for record in run:
        if record.round == 7:
            break
    assert run.saved_round == 7
    assert not run.finished
    other = resume_run(tmp_path / "a")
    assert other.round == 7
    assert [record.round for record in run] == list(range(8, 15))
    whole(TINY, tmp_path / "b")
    assert_same_run(tmp_path / "a", tmp_path / "b")


def test_an_error_in_the_loop_saves_too(tmp_path: Path) -> None:
    run = start_run(tiny(), tmp_path / "a", checkpoint_every=5)
    with pytest.raises(ZeroDivisionError):
        _ = [1 / (record.round - 6) for record in run]
    assert resume_run(tmp_path / "a").round == 6


def test_a_round_that_breaks_off_is_not_saved(tmp_path: Path) -> None:
    run = start_run(tiny(), tmp_path / "a", checkpoint_every=4)
    train = run.federation.clients.train

    def interrupted(*args: Any) -> None:
        train(*args)
        if run.round == 6:
            raise KeyboardInterrupt

    run.federation.clients.train = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        list(run)
    with pytest.raises(SequenceError, match=r"round 7 broke off .* goes on from round 4"):
        list(run)
    resumed = resume_run(tmp_path / "a")
    assert resumed.round == 4
    list(resumed)
    whole(TINY, tmp_path / "b")
    assert_same_run(tmp_path / "a", tmp_path / "b")


# ------------------------------------------------------------------------------ the folder


def test_records_come_back_bit_for_bit_type_and_all(tmp_path: Path) -> None:
    run = whole({**PRIORITY, "eval_every": 4}, tmp_path / "a")
    for one, other in zip(run.records, resume_run(tmp_path / "a").records, strict=True):
        for field in dataclasses.fields(RoundRecord):
            first, second = getattr(one, field.name), getattr(other, field.name)
            assert type(first) is type(second), field.name
            if isinstance(first, np.ndarray):
                assert first.dtype == second.dtype
                assert first.tobytes() == second.tobytes()
                assert not second.flags.writeable
            else:
                assert np.float64(first).tobytes() == np.float64(second).tobytes()


def test_a_finished_run_yields_nothing(tmp_path: Path) -> None:
    whole(TINY, tmp_path / "a")
    stamp = (tmp_path / "a" / "result.nc").stat().st_mtime_ns
    run = resume_run(tmp_path / "a")
    assert run.finished
    assert len(run.records) == 14
    assert list(run) == []
    assert (tmp_path / "a" / "result.nc").stat().st_mtime_ns == stamp


def test_a_lost_result_is_written_again(tmp_path: Path) -> None:
    whole(TINY, tmp_path / "a")
    before = load_training(tmp_path / "a" / "result.nc")
    (tmp_path / "a" / "result.nc").unlink()
    run = resume_run(tmp_path / "a")
    assert not run.finished
    assert list(run) == []
    assert run.finished
    assert load_training(tmp_path / "a" / "result.nc").identical(before)


def test_damage_is_reported_and_the_checkpoint_before_used(tmp_path: Path) -> None:
    whole(TINY, tmp_path / "b")
    run = start_run(tiny(), tmp_path / "a", checkpoint_every=3)
    for record in run:
        if record.round == 11:
            run.stop()
    newest = max((tmp_path / "a" / "checkpoints").glob("*.safetensors"))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 4
    newest.write_bytes(content)
    resumed = resume_run(tmp_path / "a")
    assert resumed.round == 9
    assert len(resumed.notes) == 1
    assert "round-00000011.json" in resumed.notes[0]
    list(resumed)
    assert_same_run(tmp_path / "a", tmp_path / "b")


def test_no_usable_checkpoint_is_an_error_that_names_them(tmp_path: Path) -> None:
    whole(TINY, tmp_path / "a")
    for path in (tmp_path / "a" / "checkpoints").glob("*.json"):
        path.write_text("{}")
    with pytest.raises(FileError, match=r"round-00000014.json.*round-00000012.json"):
        resume_run(tmp_path / "a")


def test_without_a_checkpoint_it_begins_anew(tmp_path: Path) -> None:
    whole(TINY, tmp_path / "b")
    start_run(tiny(), tmp_path / "a", checkpoint_every=3)
    for path in (tmp_path / "a" / "checkpoints").iterdir():
        path.unlink()
    run = resume_run(tmp_path / "a")
    assert run.round == 0
    list(run)
    assert_same_run(tmp_path / "a", tmp_path / "b")


def test_a_folder_with_a_run_is_refused(tmp_path: Path) -> None:
    start_run(tiny(), tmp_path / "a")
    with pytest.raises(FileError, match=r"already holds a run: .*freshband train --resume .*/a"):
        start_run(tiny(), tmp_path / "a")
    (tmp_path / "a" / "run.json").unlink()
    with pytest.raises(FileError, match="already holds checkpoints"):
        start_run(tiny(), tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "result.nc").touch()
    with pytest.raises(FileError, match="already holds a result"):
        start_run(tiny(), tmp_path / "b")


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(FileError, match=r"holds no run: .*run.json is missing"):
            resume_run(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is damaged"),
        ("[]", "is damaged"),
        ("{}", "lacks 'format'"),
        ('{"format": "freshband run 9"}', "must have the format 'freshband run 1'"),
        ('{"format": "freshband run 1", "settings": {"clients": 0}}', "clients must be"),
    ],
)
def test_a_damaged_description_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(FileError, match=message):
        resume_run(tmp_path)


def test_checkpoints_of_other_settings_are_refused(tmp_path: Path) -> None:
    start_run(tiny(), tmp_path / "a")
    body = json.loads((tmp_path / "a" / "run.json").read_text())
    body["settings"]["seed"] = 4
    (tmp_path / "a" / "run.json").write_text(json.dumps(body))
    with pytest.raises(FileError, match="of other settings than"):
        resume_run(tmp_path / "a")


def test_settings_that_came_later_have_their_defaults(tmp_path: Path) -> None:
    """A run begun by an older version goes on."""
    start_run(tiny(), tmp_path / "a")
    described = tmp_path / "a" / "run.json"
    body = json.loads(described.read_text())
    del body["settings"]["algorithm_options"]
    described.write_text(json.dumps(body))
    found = load_checkpoint(tmp_path / "a" / "checkpoints")
    del found.facts["federation"]["settings"]["algorithm_options"]
    save_checkpoint(tmp_path / "a" / "checkpoints", found.round, found.tensors, found.facts)
    assert resume_run(tmp_path / "a").federation.settings == tiny()


def test_two_at_a_time_are_refused(tmp_path: Path) -> None:
    first, second = start_run(tiny(), tmp_path / "a"), resume_run(tmp_path / "a")
    rounds = iter(first)
    next(rounds)
    with pytest.raises(FileError, match="is in use"):
        next(iter(second))
    rounds.close()  # type: ignore[attr-defined]
    next(iter(second))


def test_other_versions_are_noted(tmp_path: Path) -> None:
    start_run(tiny(), tmp_path / "a")
    body = json.loads((tmp_path / "a" / "run.json").read_text())
    assert body["versions"]["torch"].startswith(torch.__version__.partition("+")[0])
    body["versions"]["numpy"] = "1.0"
    (tmp_path / "a" / "run.json").write_text(json.dumps(body))
    (note,) = resume_run(tmp_path / "a").notes
    assert "begun with numpy 1.0, goes on with" in note


@pytest.mark.parametrize("name", ["checkpoint_every", "keep"])
def test_counts_are_checked_before_anything_is_made(tmp_path: Path, name: str) -> None:
    with pytest.raises(ParameterError, match=f"{name} must be a whole number >= 1, got 0"):
        start_run(tiny(), tmp_path / "a", **{name: 0})
    assert not (tmp_path / "a").exists()


# ------------------------------------------------------------------------------ own objects


def own_objects() -> dict[str, Any]:
    digits = load_dataset("digits")
    mine = Dataset.of(
        digits.train_images[:300], digits.train_labels[:300],
        digits.test_images[:50], digits.test_labels[:50],
    )  # fmt: skip
    return {
        "dataset": mine,
        "model": build_model("mlp", mine.shape, mine.n_classes, seed=9, hidden=[5]),
        "partition": split_samples(mine.train_labels, 4, scheme="iid", seed=1),
        "channels": tiny(channels="stationary").build_channels(),
    }


def test_own_objects_must_be_given_again(tmp_path: Path) -> None:
    settings = tiny(model=None, model_options={})
    own = own_objects()
    run = start_run(settings, tmp_path / "a", **own)
    for record in run:
        if record.round == 5:
            break
    for name in own:
        without = {key: value for key, value in own.items() if key != name}
        with pytest.raises(ParameterError, match=f"{name} must be given"):
            resume_run(tmp_path / "a", **without)
    other = {
        "dataset": load_dataset("digits"),
        "model": build_model("mlp", (1, 8, 8), 10, seed=9, hidden=[6]),
        "partition": split_samples(own["dataset"].train_labels, 4, scheme="iid", seed=2),
        "channels": tiny(channels="piecewise").build_channels(),
    }
    for name, value in other.items():
        with pytest.raises(ParameterError, match=f"{name} must be the one"):
            resume_run(tmp_path / "a", **{**own, name: value})
    # a model with other weights is fine: the weights are in the checkpoint
    again = {**own_objects(), "model": build_model("mlp", (1, 8, 8), 10, seed=8, hidden=[5])}
    resumed = resume_run(tmp_path / "a", **again)
    list(resumed)
    plain = start_run(settings, tmp_path / "b", **own)
    assert same_records(list(plain), resumed.records)
    assert same_bits(final_state(tmp_path / "a"), final_state(tmp_path / "b"))


def test_objects_not_asked_for_are_refused(tmp_path: Path) -> None:
    start_run(tiny(), tmp_path / "a")
    with pytest.raises(ParameterError, match="dataset must not be given"):
        resume_run(tmp_path / "a", dataset=load_dataset("digits"))


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
