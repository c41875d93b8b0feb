"""The parts of a run over Flower from the settings of ``freshband train``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp import Grid

from freshband.errors import ParameterError
from freshband.federated._parts import parts_of
from freshband.federated._spelling import FORMER
from freshband.federated.settings import Training
from freshband.federated.uplink import SimulatedUplink, Uplink
from freshband.fleet.options import FleetOptions
from freshband.flower.aggregation import PaperAggregation, StrategyAggregation
from freshband.flower.server import AsyncRounds, Evaluate


def read_training(run_config: Mapping[str, Any]) -> Training:
    """Return the settings in a Flower app's run configuration.

    Keys are the names of `Training`, with dashes for underscores if you like; options of a thing
    come after a dot, such as ``partition-options.alpha``. An empty string stands for None; what
    `Training` does not know is the app's own.

    Examples
    --------
    >>> settings = read_training({"clients": 4, "partition-options.alpha": 0.1, "uplink": "x"})
    >>> settings.clients, settings.partition_options
    (4, {'alpha': 0.1})
    """
    chosen: dict[str, Any] = {}
    for key, value in run_config.items():
        name, dot, option = key.replace("-", "_").partition(".")
        if name not in {*Training.model_fields, *FORMER} or value == "":
            continue
        if dot:
            chosen.setdefault(name, {})[option] = value
        else:
            chosen[name] = value
    return Training(**chosen)


def build_rounds(
    settings: Training,
    grid: Grid,
    model: ArrayRecord,
    *,
    uplink: Uplink | None = None,
    aggregation: StrategyAggregation | PaperAggregation | None = None,
    sizes: Any = None,
    evaluate: Evaluate | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    **options: Any,
) -> AsyncRounds:
    """Return the loop that does over Flower what `Federation` does in one process.

    Parameters
    ----------
    settings : Training
        Policy, channels, algorithm, contributions, rounds and seed.
    grid, model, evaluate, checkpoint
        The same as for `AsyncRounds`.
    uplink : Uplink, optional
        By default the channels of the settings, simulated.
    aggregation : StrategyAggregation, optional
        By default the algorithm of the settings.
    sizes : array, optional
        The number of samples of each client, for ``weights="size"``.
    **options
        Further arguments of `AsyncRounds`.
    """
    fleet = settings.build_fleet()
    link = uplink or SimulatedUplink(
        settings.build_channels(), settings.rounds, settings.seed, settings.run,
        clients=settings.clients, fleet=fleet,
    )  # fmt: skip
    if not isinstance(link, SimulatedUplink):
        _refuse_simulated(settings)
    if settings.contribution_rule is not None and settings.valuing.loo != "global_minus":
        raise ParameterError(
            f"loo must be 'global_minus' over Flower, where clients leave themselves out, got "
            f"{settings.valuing.loo!r}"
        )
    if settings.weights == "size" and sizes is None:
        raise ParameterError("weights='size' needs the sizes of the clients")

    def examine(round: int, arrays: ArrayRecord) -> Mapping[str, float] | None:
        due = round % settings.eval_every == 0 or round == settings.rounds
        return evaluate(round, arrays) if evaluate is not None and due else None

    return AsyncRounds(
        grid,
        model,
        uplink=link,
        aggregation=aggregation or PaperAggregation(settings),
        weights=np.asarray(sizes) if settings.weights == "size" else None,
        evaluate=examine,
        checkpoint=checkpoint,
        local_rounds=settings.build_algorithm().training_rounds,
        **parts_of(settings, link.n_channels, fleet),
        **options,
    )


def _refuse_simulated(settings: Training) -> None:
    """Refuse what can only be simulated, for a real link."""
    for name in settings.fleet.keys() - FleetOptions.model_fields.keys():
        raise ParameterError(
            f"{name} is for simulated channels, got {settings.fleet[name]} with a real uplink"
        )
