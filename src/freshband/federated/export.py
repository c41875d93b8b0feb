"""The trained model as a file: named tensors that any module of the same shape can load.

Examples
--------
>>> import tempfile
>>> from torch import nn
>>> from safetensors.torch import load_model
>>> path = save_model(nn.Linear(2, 1), tempfile.mkdtemp() + "/model.safetensors")
>>> load_model(nn.Linear(2, 1), path)
(set(), [])
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Unpack

import safetensors.torch
import torch
from torch import nn

from freshband import __version__
from freshband._files import write_whole
from freshband.errors import ParameterError
from freshband.federated._own_things import OwnThings
from freshband.parameters import file_path, whole_number

__all__ = ["MODEL_FILE", "export_model", "save_model"]

MODEL_FILE = "model.safetensors"


def save_model(module: nn.Module, path: str | os.PathLike[str]) -> Path:
    """Write a module's parameters and persistent buffers by name, completely or not at all.

    Weights that are tied are written once, under their first name; ``safetensors.torch.load_model``
    ties them again.
    """
    target = file_path("path", path)
    made = {"format": "pt", "freshband": __version__}
    write_whole(target, safetensors.torch.save(_weights(module), made))
    return target


def holds_model(path: Path, module: nn.Module) -> bool:
    """Whether a file that `save_model` wrote holds the weights of this module, undamaged."""
    try:
        found = safetensors.torch.load(path.read_bytes())
    except (OSError, safetensors.SafetensorError, KeyError, TypeError, ValueError):
        return False
    expected = _weights(module)
    return found.keys() == expected.keys() and all(
        safetensors.torch.save({"": found[name]}) == safetensors.torch.save({"": value})
        for name, value in expected.items()
    )


def _weights(module: nn.Module) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = {}
    seen: set[tuple[int, tuple[int, ...]]] = set()
    for name, value in module.state_dict().items():
        if not isinstance(value, torch.Tensor):
            continue
        memory = (value.data_ptr(), tuple(value.shape))
        if value.numel() == 0 or memory not in seen:
            tensors[name] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        seen.add(memory)
    return tensors


def export_model(
    run: str | os.PathLike[str],
    path: str | os.PathLike[str] | None = None,
    *,
    client: int | None = None,
    **own: Unpack[OwnThings],
) -> Path:
    """Write the model of a run, as of its newest checkpoint.

    Parameters
    ----------
    run : path
        The folder of the run, finished or not.
    path : path, optional
        By default ``model.safetensors`` in that folder, or ``model-client-3.safetensors``.
    client : int, optional
        Whose model, where parts of it stay with the clients; by default with the mean of these.
    **own
        What `start_run` was given.
    """
    from freshband.federated.runs import resume_run

    home = file_path("run", run)
    with resume_run(home, **own) as found:
        if client is not None:
            client = whole_number("client", client, at_least=0)
            if client >= found.settings.clients:
                raise ParameterError(
                    f"client must be in [0, {found.settings.clients - 1}], got {client}"
                )
        name = MODEL_FILE if client is None else f"model-client-{client}.safetensors"
        return save_model(found.federation.module(client), home / name if path is None else path)
