"""Runs in folders: how they stop, go on, and refuse what does not belong to them."""

from __future__ import annotations

import dataclasses
import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load

from freshband.errors import FileError, ParameterError, SequenceError
from freshband.federated import Dataset, build_model, load_dataset, split_samples
from freshband.federated._checkpoint import load_checkpoint, save_checkpoint
from freshband.federated.records import RoundRecord
from freshband.federated.result import load_training
from freshband.federated.runs import resume_run, start_run
from tests.federated.killed import final_state, same_bits, same_records
from tests.federated.resuming import PRIORITY, TINY, assert_same_run, tiny, whole

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


def test_a_damaged_model_of_a_finished_run_is_written_again(tmp_path: Path) -> None:
    with start_run(tiny(rounds=3), tmp_path / "run") as run:
        list(run)
    path = tmp_path / "run" / "model.safetensors"
    whole = path.read_bytes()
    for data in (b"", whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
        path.write_bytes(data)
        with resume_run(tmp_path / "run") as again:
            assert not again.finished
            assert list(again) == []
            assert again.wrote_result
            assert again.notes == [f"{path} is damaged and was written again"]
        assert same_bits(load(whole), load(path.read_bytes()))
    path.unlink()  # as in runs of earlier versions
    with resume_run(tmp_path / "run") as again:
        assert again.finished


def test_a_damaged_result_of_a_finished_run_is_written_again(tmp_path: Path) -> None:
    with start_run(tiny(rounds=3), tmp_path / "run") as run:
        list(run)
        assert run.wrote_result
    path = run.result_path
    whole = load_training(path)
    with resume_run(tmp_path / "run") as again:
        assert list(again) == []
        assert not again.wrote_result
    for data in (b"", path.read_bytes()[:-1], path.read_bytes()[:-60]):
        path.write_bytes(data)
        with resume_run(tmp_path / "run") as again:
            assert not again.finished
            assert list(again) == []
            assert again.wrote_result
            assert again.finished
            assert "is damaged and was written again" in again.notes[-1]
        assert load_training(path).equals(whole)
