"""Training in one call: the run, its loggers, the trained module and the result."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import NamedTuple, Unpack

import xarray as xr
from torch import nn

from freshband.federated._own_things import OwnThings, check_settings
from freshband.federated.clients import name_device
from freshband.federated.engine import Federation
from freshband.federated.loggers.base import AnyLogger, logging_to, open_loggers
from freshband.federated.records import RoundRecord
from freshband.federated.result import collect_records
from freshband.federated.runs import start_run
from freshband.federated.settings import Training


class Trained(NamedTuple):
    """What `train` returns: the module with its trained weights, and all rounds."""

    module: nn.Module
    result: xr.Dataset


def train(
    settings: Training | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    loggers: Sequence[AnyLogger | str] = (),
    **own: Unpack[OwnThings],
) -> Trained:
    """Train a model over channels nobody can trust, from the first round to the last.

    Parameters
    ----------
    settings : Training, optional
        What to run.
    out : path, optional
        A folder for checkpoints, the result and ``model.safetensors``; without it nothing is saved.
    loggers : sequence, optional
        Loggers by name, such as ``"tensorboard"``, objects with the methods of
        `freshband.federated.loggers.Logger`, or functions of records.
    **own
        Objects of your own in place of names, as for `Federation`.

    Examples
    --------
    >>> rounds = []
    >>> settings = Training(model="mlp", clients=2, rounds=3, policy="random")
    >>> trained = train(settings, loggers=[lambda record: rounds.append(record.round)])
    >>> rounds, type(trained.module).__name__, trained.result.sizes["round"]
    ([1, 2, 3], 'Sequential', 3)
    """
    chosen = check_settings(Training() if settings is None else settings)
    opened = open_loggers(loggers)  # before a folder is made
    with ExitStack() as stack:
        if out is None:
            federation = stack.enter_context(Federation(chosen, **own))
            rounds: Iterable[RoundRecord] = federation
            folder = None
        else:
            run = stack.enter_context(start_run(chosen, out, **own))
            rounds, federation, folder = run, run.federation, run.out
        log = stack.enter_context(logging_to(opened, chosen, folder))
        records = []
        for record in rounds:
            records.append(record)
            log(record)
        device = name_device(federation.dataset.train_images.device)
        return Trained(federation.module(), collect_records(records, chosen, device=device))
