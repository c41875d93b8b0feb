"""The folder of a run: the terms in ``run.json``, and who may write there."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from pydantic import BaseModel
from torch import nn

from freshband._files import write_whole
from freshband._parsing import parse_json
from freshband._plugins import made_with
from freshband._sealed import versions_of
from freshband.errors import FileError, ParameterError, UnknownNameError, accessing, reason
from freshband.federated.data import Dataset
from freshband.federated.partition import Partition
from freshband.federated.result import _LIBRARIES
from freshband.federated.settings import Training
from freshband.parameters import whole_number

if sys.platform != "win32":  # which has no lock as simple that a kill undoes
    import fcntl

_FORMAT: Final = "freshband run 1"


@dataclasses.dataclass(frozen=True)
class Terms:
    """What a run began under.

    ``objects`` are fingerprints of what the caller gave in place of a name, ``imported`` the user's
    own files, and ``notes`` what reading them found out: recordings that had moved.
    """

    settings: Training
    checkpoint_every: int
    keep: int
    objects: Mapping[str, str]
    versions: Mapping[str, str]
    imported: Sequence[str] = ()
    notes: Sequence[str] = ()


def terms_path(home: Path) -> Path:
    """Return the file in a run's folder that holds its terms."""
    return home / "run.json"


def write_terms(home: Path, terms: Terms) -> None:
    """Write the terms of a run, completely or not at all."""
    body = {
        "format": _FORMAT,
        "settings": terms.settings.model_dump(mode="json"),
        "checkpoint_every": terms.checkpoint_every,
        "keep": terms.keep,
        "objects": terms.objects,
        "versions": terms.versions,
        **({"imported": list(terms.imported)} if terms.imported else {}),
    }
    write_whole(terms_path(home), (json.dumps(body, indent=2) + "\n").encode())


def read_terms(home: Path) -> Terms:
    """Return the terms of the run in a folder, or raise `FileError`."""
    path = terms_path(home)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileError(f"{home} holds no run: {path} is missing") from None
    except (OSError, ValueError) as error:
        raise FileError(f"cannot read {path}: {reason(error)}") from None
    try:
        body = parse_json(text)
        if body["format"] != _FORMAT:
            raise ValueError(f"it must have the format {_FORMAT!r}, got {body['format']!r}")
        notes: list[str] = []
        with made_with(path, body):
            settings = Training.as_stored(body["settings"], home, notes)
        return Terms(
            settings=settings,
            checkpoint_every=whole_number("checkpoint_every", body["checkpoint_every"], at_least=1),
            keep=whole_number("keep", body["keep"], at_least=1),
            objects=dict(body["objects"]),
            versions=dict(body["versions"]),
            imported=[str(name) for name in body.get("imported", [])],
            notes=notes,
        )
    except UnknownNameError as error:  # of a file that is not imported
        raise FileError(f"cannot go on with {home}: {reason(error)}") from None
    except KeyError as error:
        raise FileError(f"{path} is damaged: it lacks {error}") from None
    except (TypeError, ValueError) as error:
        raise FileError(f"{path} is damaged: {reason(error)}") from None


def versions() -> dict[str, str]:
    """Return the versions of Python and the libraries now."""
    found: dict[str, str] = parse_json(versions_of(_LIBRARIES))
    return found


def version_notes(terms: Terms) -> list[str]:
    """Return a sentence for everything that runs in another version than at the start."""
    return [
        f"begun with {name} {terms.versions[name]}, goes on with {now}: the last bits may differ"
        for name, now in versions().items()
        if terms.versions.get(name, now) != now
    ]


def check_objects(own: Mapping[str, Any], terms: Terms) -> None:
    """Refuse other objects than the run began with."""
    for name in sorted(own.keys() | terms.objects.keys()):
        if name not in own:
            raise ParameterError(f"{name} must be given: the run began with one of its own")
        if name not in terms.objects:
            raise ParameterError(f"{name} must not be given: the run began without")
        if fingerprint(own[name]) != terms.objects[name]:
            raise ParameterError(f"{name} must be the one the run began with, got another")


def fingerprint(value: object) -> str:
    """Return what distinguishes an object of its kind; a model's weights do not count."""
    digest = hashlib.sha256()
    if isinstance(value, Dataset):
        parts = [value.train_images, value.train_labels, value.test_images, value.test_labels]
        for name in ("train_more", "test_more"):
            parts += getattr(value, name, ())
        for part in parts:
            array = part.cpu().contiguous().numpy()
            digest.update(f"{array.dtype} {array.shape}".encode())
            digest.update(array.data)
        digest.update(repr((value.n_classes, value.mean, value.std)).encode())
    elif isinstance(value, Partition):
        for held in (*value.train, *value.val):
            digest.update(repr(held.tolist()).encode())
    elif isinstance(value, nn.Module):
        shapes = [(name, tuple(each.shape)) for name, each in value.named_parameters()]
        digest.update(repr(shapes).encode())
        for name, each in value.named_parameters():
            if not each.requires_grad:  # nothing else says what it was
                digest.update(name.encode() + each.detach().cpu().double().numpy().tobytes())
    elif isinstance(value, BaseModel):
        digest.update(value.model_dump_json().encode())
    elif isinstance(value, Mapping | list | tuple | np.ndarray | torch.Tensor):
        digest.update(repr(_plain(value)).encode())
    elif hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"  # a function or a class, mended or not
    return f"{type(value).__name__} {digest.hexdigest()[:16]}"


def _plain(value: Any) -> Any:
    """Return lists of a partition, or the data sets of a pair, as what tells them apart."""
    if isinstance(value, Mapping):
        return [_plain(each) for each in value.values()]
    if isinstance(value, np.ndarray | torch.Tensor):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if isinstance(value, int | float | str) else type(value).__name__


@contextmanager
def claimed(home: Path) -> Iterator[None]:
    """Keep other processes out of a folder; the system lets them in when this one dies."""
    if sys.platform == "win32":
        yield
        return
    with accessing("open", home):
        handle = os.open(home, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FileError(f"{home} is in use: its run goes on elsewhere") from None
        except OSError:
            pass  # a file system without locks keeps nobody out
        yield
    finally:
        os.close(handle)
