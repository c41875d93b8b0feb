"""Local training of many clients at once, one path per file.

`choose_clients` picks the path that is fastest for a model and a device; all compute the same.
"""

from __future__ import annotations

import copy
import os
from contextlib import suppress
from typing import TYPE_CHECKING

import torch
from torch import nn

from freshband.errors import ParameterError
from freshband.federated.clients._base import LocalTraining
from freshband.federated.data.base import Dataset

if TYPE_CHECKING:
    from freshband.federated._opening import OwnNeeds
    from freshband.federated.settings import Training

_TINY = 20_000  # parameters; below, calling torch costs more than what it computes

__all__ = ["choose_clients", "name_device", "pick_device"]


def pick_device(name: str) -> torch.device:
    """Return the device a name stands for: ``"auto"`` is a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        why = str(error).partition("\n")[0]
        raise ParameterError(
            f"device must be 'auto', 'cpu' or a GPU like 'cuda', got {name!r}: {why}"
        ) from None
    return device


def name_device(device: torch.device) -> str:
    """Return a device's name for people: a GPU with its model."""
    if device.type != "cuda":
        return str(device)
    return f"{device} ({torch.cuda.get_device_name(device)})"


def choose_clients(
    module: nn.Module, dataset: Dataset, settings: Training, own: OwnNeeds | None = None
) -> LocalTraining:
    """Return the path that the settings specify, or else the fastest one.

    The module is on the CPU, the data set on the device to train on. ``own`` is what a path needs
    to know where the task is more than images and classes, or the module more than parameters.
    """
    from freshband.federated.clients._batched import StackedClients, is_dense
    from freshband.federated.clients._threads import ThreadedClients

    device = dataset.train_images.device
    precision = settings.precision
    if device.type != "cuda" and (precision in ("tf32", "bf16") or settings.path == "graphs"):
        raise ParameterError(
            "path 'graphs' and the precisions 'tf32' and 'bf16' are for GPUs, the device is "
            f"{str(device)!r}; bf16 products crash Python on some CPUs"
        )
    if own is not None and precision in ("tf32", "bf16"):
        raise ParameterError(
            f"precision {precision!r} is for plain modules on images with classes, but {own.why}: "
            "use 'float32'"
        )
    plain = own is None and settings.path in ("auto", "graphs")
    if device.type == "cuda" and plain and precision != "float64":
        from freshband.federated.clients.gpu import GraphedClients

        return GraphedClients(module, dataset, "tf32" if precision == "auto" else precision)
    module = copy.deepcopy(module).to(
        device=device, dtype=torch.float64 if precision == "float64" else torch.float32
    )
    if device.type == "cuda":  # threads would wait for each other there
        settings = settings.model_copy(update={"workers": 1})
    cores = os.cpu_count() or 1
    workers = min(settings.workers or cores, 8 * cores)  # more would only wait for each other
    if own is not None:
        from freshband.federated.clients._own import OwnClients

        return OwnClients(module, dataset, workers, own.task, own.travel, own.found)
    small = sum(parameter.numel() for parameter in module.parameters()) <= _TINY
    if settings.path == "stacked":
        return StackedClients(module, dataset, workers)
    if settings.path == "auto" and (small or is_dense(module)):
        with suppress(ParameterError):  # a user's own module may do what cannot be stacked
            return StackedClients(module, dataset, workers)
    return ThreadedClients(module, dataset, workers)
