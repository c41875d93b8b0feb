"""A training run in a folder: it can be stopped or killed at any moment, and resumed.

The folder holds ``run.json`` (what to run, and how often to save it), ``checkpoints/`` and, when
all rounds are played, ``model.safetensors`` and ``result.nc``. On a CPU a resumed run is, bit for
bit, the one that was never interrupted.

Examples
--------
>>> import tempfile
>>> from freshband.federated.settings import Training
>>> folder = tempfile.mkdtemp() + "/mine"
>>> run = start_run(Training(model="mlp", clients=2, rounds=3, policy="random"), folder)
>>> for record in run:
...     if record.round == 2:
...         run.stop()
>>> run = resume_run(folder)
>>> [record.round for record in run], run.finished
([3], True)
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Unpack

import torch
import xarray as xr

from freshband._files import make_folder, sweep
from freshband._plugins import imported_files, made_with
from freshband.errors import FileError, FreshbandError, SequenceError, reason
from freshband.federated._checkpoint import (
    Checkpoint,
    has_checkpoint,
    load_checkpoint,
    save_checkpoint,
    tensors_of,
)
from freshband.federated._own_things import OwnThings, check_settings, given_things
from freshband.federated._terms import (
    Terms,
    check_objects,
    claimed,
    fingerprint,
    read_terms,
    terms_path,
    version_notes,
    versions,
    write_terms,
)
from freshband.federated.clients import name_device
from freshband.federated.engine import Federation
from freshband.federated.export import MODEL_FILE, holds_model, save_model
from freshband.federated.records import RoundRecord, _stack_records, _unstack_records
from freshband.federated.result import collect_records, load_training, save_training
from freshband.federated.settings import Training
from freshband.parameters import file_path, whole_number

_STATE, _RECORDS = "federation.", "records."  # whose tensors they are


class Run:
    """A federation, the records of its rounds, and the folder both are kept in.

    Made by `start_run` and `resume_run`. Iterate over it to play the rounds that are left: each
    record comes after everything due was saved. Leave the loop whenever you like; the folder can be
    resumed from what is there, and so can the loop.

    Attributes
    ----------
    out : Path
        The folder.
    settings, federation
        What is run, and how far it got.
    records : list of RoundRecord
        All rounds so far, also those played before the run was resumed.
    notes : list of str
        Warnings for the user: damaged checkpoints, other versions than the run began with.
    stopped : bool
        Whether the last loop ended because of `stop`.
    saved_round : int
        The newest round that is safe on the disk; 0 is the state before the first, -1 none.
    wrote_result : bool
        Whether this object wrote the result; that of a finished run is written again if it is
        damaged.
    """

    def __init__(
        self,
        out: Path,
        terms: Terms,
        federation: Federation,
        records: Sequence[RoundRecord] = (),
        notes: Sequence[str] = (),
        saved_round: int = -1,
    ) -> None:
        self.out: Final = out
        self.settings: Final = terms.settings
        self.federation: Final = federation
        self.records: Final = list(records)
        self.notes: Final = list(notes)
        self.stopped = False
        self.saved_round = saved_round
        self.wrote_result = False
        self._terms: Final = terms
        self._stopping = False
        self._torn = False

    @property
    def round(self) -> int:
        """Rounds played."""
        return len(self.records)

    @property
    def result_path(self) -> Path:
        """Where the result is written when all rounds are played."""
        return self.out / "result.nc"

    @property
    def finished(self) -> bool:
        """Whether all rounds are played, and the result and the model are written, whole.

        The model may be gone: runs of earlier versions have none.
        """
        return self.round == self.settings.rounds and self._damaged() is None

    def _damaged(self) -> Path | None:
        """Return the result if it is missing or damaged, or the model if it is damaged."""
        try:
            load_training(self.result_path)
        except FileError:
            return self.result_path
        model = self.out / MODEL_FILE
        whole = not model.exists() or holds_model(model, self.federation.module())
        return None if whole else model

    def stop(self) -> None:
        """End the loop after the present round, with a checkpoint; a signal handler may call it."""
        self._stopping = True

    def close(self) -> None:
        """Give back threads and memory; records and files stay."""
        self.federation.close()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[RoundRecord]:
        if self._torn:
            raise SequenceError(
                f"round {self.round + 1} broke off in the middle: resume_run({str(self.out)!r}) "
                f"goes on from round {max(self.saved_round, 0)}"
            )
        if self.finished:
            return
        if self.round == self.settings.rounds and self.result_path.exists():
            self.notes.append(f"{self._damaged()} is damaged and was written again")
        self.stopped = False
        with claimed(self.out):
            sweep(self.out, ".*.result.nc", ".run.json.*.tmp", ".*.trial")
            try:
                yield from self._play()
            except GeneratorExit:
                self._save_if_possible()
                raise
            finally:
                self.stopped, self._stopping = self._stopping, False

    def _play(self) -> Iterator[RoundRecord]:
        while self.round < self.settings.rounds and not self._stopping:
            self._torn = True  # until the round and its record are both there
            record = self._step()
            self.records.append(record)
            self._torn = False
            if self.round % self._terms.checkpoint_every == 0:
                self._save()
            if self.round == self.settings.rounds:
                self._save()
                self._write_result()
            yield record
        self._save()
        if self.round == self.settings.rounds and not self.finished:
            self._write_result()

    def _step(self) -> RoundRecord:
        """Play a round; save those before it if it breaks off because of the user's own things."""
        try:
            return self.federation.step()
        except FreshbandError as error:
            if not self.federation.intact:
                raise
            self._save_if_possible(intact=True)
            raise type(error)(f"{reason(error)}; {self._what_is_safe()}") from error

    def _save(self) -> None:
        """Write a checkpoint, unless this round has one."""
        owed = self.federation.unexamined
        records = self.records if owed is None else [*self.records, owed]
        if self.saved_round == len(records):
            return
        state, facts = self.federation.checkpoint()
        tensors = {_STATE + name: tensor for name, tensor in state.items()}
        stacked = _stack_records(records)
        tensors |= {_RECORDS + name: torch.from_numpy(values) for name, values in stacked.items()}
        facts = {"federation": facts, "versions": versions()}
        with self._telling_what_is_safe():
            save_checkpoint(_checkpoints(self.out), len(records), tensors, facts, self._terms.keep)
        self.saved_round = len(records)

    def _save_if_possible(self, intact: bool = False) -> None:
        """Save when the caller left the loop; nobody can catch an error then."""
        if intact or not self._torn:
            try:
                self._save()
            except FreshbandError as error:
                self.notes.append(str(error))

    def _write_result(self) -> None:
        device = name_device(self.federation.dataset.train_images.device)
        with self._telling_what_is_safe():
            save_model(self.federation.module(), self.out / MODEL_FILE)
            result = collect_records(self.records, self.settings, device=device)
            save_training(result, self.result_path)
        self.wrote_result = True

    @contextmanager
    def _telling_what_is_safe(self) -> Iterator[None]:
        """Add to a writing error the round from which the run can be resumed."""
        try:
            yield
        except FileError as error:
            raise FileError(f"{reason(error)}; {self._what_is_safe()}") from None

    def _what_is_safe(self) -> str:
        if self.saved_round < 0:
            return "no round was saved"
        how = f"freshband train --resume {self.out}"
        if self._terms.objects:
            given = ", ".join(f"{name}=..." for name in self._terms.objects)
            how = f"resume_run({str(self.out)!r}, {given})"
        return (
            f"round {self.saved_round} of {self.settings.rounds} is safe: go on from it with {how}"
        )


def start_run(
    settings: Training,
    out: str | os.PathLike[str],
    *,
    checkpoint_every: int = 10,
    keep: int = 2,
    **own: Unpack[OwnThings],
) -> Run:
    """Begin a run in a folder of its own; iterate over what is returned to play it.

    Parameters
    ----------
    settings : Training
        What to run.
    out : path
        The folder of the run, made if it is not there. It must not hold a run already.
    checkpoint_every : int >= 1, default 10
        The number of rounds between two checkpoints. The last round always has one.
    keep : int >= 1, default 2
        The number of checkpoints to keep.
    **own
        ``dataset``, ``model``, ``channels``, ``partition`` and ``algorithm`` of your own, as in
        `Federation`; `resume_run` must be given the same.
    """
    home, given = file_path("out", out), given_things(**own)
    terms = Terms(
        settings=check_settings(settings),
        checkpoint_every=whole_number("checkpoint_every", checkpoint_every, at_least=1),
        keep=whole_number("keep", keep, at_least=1),
        objects={name: fingerprint(value) for name, value in given.items()},
        versions=versions(),
        imported=[str(path) for path in imported_files()],
    )
    make_folder(home)  # before anything is loaded
    _refuse_run(home)
    run = Run(home, terms, Federation(settings, **given))
    with ExitStack() as undoing:
        undoing.callback(run.close)
        with claimed(home):
            _refuse_run(home)
            write_terms(home, terms)
            try:
                run._save()  # before the first round: shows that a checkpoint fits and can be read
            except FileError:
                terms_path(home).unlink(missing_ok=True)
                raise
        undoing.pop_all()
    return run


def resume_run(out: str | os.PathLike[str], **own: Unpack[OwnThings]) -> Run:
    """Resume a run from its newest complete checkpoint.

    A run that was killed before its first checkpoint begins again. A finished one has its records
    and yields nothing. ``own`` is what `start_run` was given. A `FileError` says if the folder
    holds no run, or none of its checkpoints can be used.
    """
    home, given = file_path("out", out), given_things(**own)
    terms = read_terms(home)
    check_objects(given, terms)
    notes = [*terms.notes, *version_notes(terms)]
    with made_with(terms_path(home), {"imported": terms.imported}):
        if not has_checkpoint(_checkpoints(home)):
            return Run(home, terms, Federation(terms.settings, **given), notes=notes)
        found = load_checkpoint(_checkpoints(home))
        notes += [f"damaged checkpoint, not used: {which}" for which in found.damaged]
        records = _records_of(home, terms, found)
        facts = {**found.facts.get("federation", {}), "settings": terms.settings.model_dump()}
        federation = Federation.restore(tensors_of(found.tensors, _STATE), facts, **given)
    if records and _lacks_evaluation(records[-1], terms.settings):
        federation.unexamined = records.pop()  # it broke off there
    return Run(home, terms, federation, records, notes, len(records))


def _lacks_evaluation(record: RoundRecord, settings: Training) -> bool:
    due = record.round % settings.eval_every == 0 or record.round == settings.rounds
    return due and record.accuracy != record.accuracy


def _read_rounds(out: str | os.PathLike[str]) -> xr.Dataset:
    """Return the rounds a run has played so far, as of its newest complete checkpoint.

    They are as `collect_records` returns them, with the versions of the run. The run may continue
    meanwhile, and nothing that it trains with is loaded.
    """
    home = file_path("out", out)
    terms = read_terms(home)
    found = load_checkpoint(_checkpoints(home))
    records = _records_of(home, terms, found)
    if not records:
        raise FileError(f"{home} holds a run of which no round was saved yet")
    result = collect_records(records, terms.settings, device=terms.settings.device)
    return result.assign_attrs(versions=json.dumps(found.facts.get("versions", terms.versions)))


def _records_of(home: Path, terms: Terms, found: Checkpoint) -> list[RoundRecord]:
    """Return the records in a checkpoint, which must be of the run with these terms."""
    where = f"round {found.round} in {_checkpoints(home)}"
    facts = found.facts.get("federation", {})
    try:  # gives the settings an older version did not have their defaults
        settings = Training.as_stored(facts.get("settings", {}), home).model_dump(mode="json")
    except (FreshbandError, TypeError) as error:
        raise FileError(f"cannot read the settings of {where}: {reason(error)}") from None
    if settings != terms.settings.model_dump(mode="json"):
        raise FileError(f"{where} is a checkpoint of other settings than {terms_path(home)} has")
    try:
        stacked = tensors_of(found.tensors, _RECORDS)
        return _unstack_records({n: values.numpy() for n, values in stacked.items()}, found.round)
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(f"cannot read the records of {where}: {reason(error)}") from None


# ---------------------------------------------------------------------------------- the folder


def _checkpoints(home: Path) -> Path:
    return home / "checkpoints"


def _how_to_resume(home: Path) -> str:
    return f"freshband train --resume {home}"


def _refuse_run(home: Path) -> None:
    if terms_path(home).exists():
        raise FileError(
            f"{home} already holds a run: go on with it by {_how_to_resume(home)}, or give "
            "another folder"
        )
    if has_checkpoint(_checkpoints(home)):
        raise FileError(
            f"{_checkpoints(home)} already holds checkpoints of a run whose run.json is gone: "
            "give another folder"
        )
    if (home / "result.nc").exists():
        raise FileError(f"{home} already holds a result.nc: give another folder")
