"""Checkpoints: a run's whole state on disk, there completely or not at all.

A checkpoint of round 10 is two files: the tensors, ``round-00000010-<digest>.safetensors``, and
``round-00000010.json`` with everything else. The JSON is written last and carries the SHA-256 of
the tensors and of itself, so a checkpoint exists only when its JSON does, and whatever happens to
either file later is noticed.

Examples
--------
>>> import tempfile
>>> folder = tempfile.mkdtemp()
>>> save_checkpoint(folder, 10, {"w": torch.ones(3)}, {"seed": 0}, keep=2).name
'round-00000010.json'
>>> load_checkpoint(folder).facts
{'seed': 0}
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import safetensors.torch
import torch

from freshband._files import sweep, write_whole
from freshband._parsing import parse_json
from freshband.errors import FileError, ParameterError, accessing, reason
from freshband.parameters import file_path, whole_number

_FORMAT: Final = "freshband checkpoint 1"
_FACTS: Final = re.compile(r"round-(\d{8,})\.json")
_TENSORS: Final = re.compile(r"round-(\d{8,})-[0-9a-f]{12}\.safetensors")
_HEAD, _MIDDLE, _TAIL = b'{"sha256": "', b'", "checkpoint": ', b"}\n"


@dataclasses.dataclass(frozen=True, eq=False)
class Checkpoint:
    """What a checkpoint held; tensors are on the CPU, and JSON makes lists of tuples."""

    round: int
    tensors: dict[str, torch.Tensor]
    facts: dict[str, Any]
    damaged: tuple[str, ...]  # newer checkpoints that could not be used: path and reason of each


class _DamagedError(Exception):
    """Why a checkpoint cannot be used."""


def save_checkpoint(
    folder: str | os.PathLike[str],
    round: int,
    tensors: Mapping[str, torch.Tensor],
    facts: Mapping[str, Any],
    keep: int = 2,
) -> Path:
    """Write a checkpoint, then remove those that are no longer wanted; return its JSON file.

    The folder belongs to one run, which one process at a time writes to; files with other names are
    left alone. Facts are JSON values, also NaN and infinities. ``keep`` counts this checkpoint and
    those of the rounds before it. If the disk is full, the checkpoints that were there still are.
    """
    home = file_path("folder", folder)
    round = whole_number("round", round, at_least=0)
    keep = whole_number("keep", keep, at_least=1)
    data = _pack(tensors)
    digest = hashlib.sha256(data).hexdigest()
    name = f"round-{round:08d}"
    held = home / f"{name}-{digest[:12]}.safetensors"
    body = {
        "format": _FORMAT,
        "round": round,
        "tensors": {"file": held.name, "bytes": len(data), "sha256": digest},
        "facts": dict(facts),
    }
    sealed = _seal(body)
    path = home / f"{name}.json"
    sweep(home, ".round-*.tmp")
    is_new = not held.exists()
    write_whole(held, data)
    try:
        write_whole(path, sealed)
    except FileError:
        if is_new:  # else a checkpoint that is whole has these very tensors
            held.unlink(missing_ok=True)
        raise
    _retire(home, round, held.name, keep)
    return path


def load_checkpoint(folder: str | os.PathLike[str]) -> Checkpoint:
    """Return the newest checkpoint that is whole; if there is none, the error names the damaged."""
    home = file_path("folder", folder)
    damaged: list[str] = []
    for round, path in _candidates(home):
        try:
            tensors, facts = _read(path, round)
        except _DamagedError as damage:
            damaged.append(f"{path}: {damage}")
        else:
            return Checkpoint(round, tensors, facts, tuple(damaged))
    if damaged:
        raise FileError(f"no checkpoint in {home} can be used: {'; '.join(damaged)}")
    raise FileError(f"{home} holds no checkpoint")


def has_checkpoint(folder: str | os.PathLike[str]) -> bool:
    """Whether there is a checkpoint, be it damaged."""
    return any(path.suffix == ".json" for _, path in _candidates(file_path("folder", folder)))


def tensors_of(tensors: Mapping[str, torch.Tensor], owner: str) -> dict[str, torch.Tensor]:
    """Return the tensors whose names begin with that of an owner, without it."""
    size = len(owner)
    return {name[size:]: tensor for name, tensor in tensors.items() if name.startswith(owner)}


def _pack(tensors: Mapping[str, torch.Tensor]) -> bytes:
    """Return tensors in the safetensors format, which wants none to share memory."""
    if "__metadata__" in tensors:  # it would be written, and could not be read
        raise ParameterError("tensors cannot be called '__metadata__': safetensors uses that name")
    ready, seen = {}, set()
    for name, tensor in tensors.items():
        alone = tensor.detach().to("cpu").contiguous()
        memory = alone.untyped_storage().data_ptr()
        if memory in seen:
            alone = alone.clone()
        seen.add(memory)
        ready[name] = alone
    try:
        return safetensors.torch.save(ready)
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ParameterError(f"tensors cannot be written: {reason(error)}") from None


def _seal(body: dict[str, Any]) -> bytes:
    try:
        text = json.dumps(body).encode()
    except (TypeError, ValueError) as error:
        raise ParameterError(f"facts must be JSON values: {reason(error)}") from None
    return _HEAD + hashlib.sha256(text).hexdigest().encode() + _MIDDLE + text + _TAIL


def _unseal(data: bytes) -> dict[str, Any]:
    """Return the body of a JSON file after comparing every byte of it with what was written."""
    at = len(_HEAD) + 64
    text = data[at + len(_MIDDLE) : -len(_TAIL)]
    digest = hashlib.sha256(text).hexdigest().encode()
    if data != _HEAD + digest + _MIDDLE + text + _TAIL:
        raise _DamagedError("its checksum does not match")
    body: dict[str, Any] = parse_json(text)
    if body["format"] != _FORMAT:
        raise _DamagedError(f"it must have the format {_FORMAT!r}, got {body['format']!r}")
    return body


def _read(path: Path, round: int) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    if path.suffix != ".json":
        raise _DamagedError("it was being written when the process ended")
    try:
        body = _unseal(path.read_bytes())
        if body["round"] != round:
            raise _DamagedError(f"it is of round {body['round']}")
        about = body["tensors"]
        data = path.with_name(about["file"]).read_bytes()
        if hashlib.sha256(data).hexdigest() != about["sha256"]:
            raise _DamagedError(f"the checksum of {about['file']} does not match")
        return safetensors.torch.load(data), body["facts"]
    except OSError as error:
        which = Path(error.filename or path).name
        raise _DamagedError(f"cannot read {which}: {reason(error)}") from None
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
        raise _DamagedError(f"it is whole but cannot be understood: {reason(error)}") from None


def _candidates(home: Path) -> list[tuple[int, Path]]:
    """List what may be checkpoints, newest first: JSON files, and tensors that lack theirs."""
    found: dict[int, Path] = {}
    for path in _listed(home):
        if match := _FACTS.fullmatch(path.name):
            found[int(match[1])] = path
        elif match := _TENSORS.fullmatch(path.name):
            found.setdefault(int(match[1]), path)
    return sorted(found.items(), reverse=True)


def _listed(home: Path) -> list[Path]:
    with accessing("read", home):
        return sorted(home.iterdir()) if home.exists() else []


def _retire(home: Path, round: int, tensors: str, keep: int) -> None:
    """Remove all but the checkpoint of a round and the ``keep - 1`` before it.

    Later ones go too: they were damaged, and the run that writes now went on from an earlier one. A
    JSON file goes before its tensors, so that no half of a checkpoint looks whole.
    """
    with suppress(OSError):  # the new checkpoint is safe; tidying can wait for the next
        facts = {path: _FACTS.fullmatch(path.name) for path in _listed(home)}
        rounds = sorted({int(match[1]) for match in facts.values() if match})
        kept = [known for known in rounds if known <= round][-keep:]
        for path, match in facts.items():
            if match and int(match[1]) not in kept:
                path.unlink()
        for path in facts:
            match = _TENSORS.fullmatch(path.name)
            if match and (
                int(match[1]) not in kept or (int(match[1]) == round and path.name != tensors)
            ):
                path.unlink()
