"""``freshband list``: names of schedulers, channels and more, and what they mean."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from freshband.cli._tables import make_table, open_console
from freshband.cli._training import need_extra
from freshband.errors import UnknownNameError, nearest

# Most need the extra for training, so they are imported only when they are asked for.
_OF_TRAINING = {
    "experiments": "freshband.experiments.base",
    "datasets": "freshband.federated.data.base",
    "models": "freshband.federated.models.base",
    "partitions": "freshband.federated.partition.base",
    "losses": "freshband.federated.losses.base",
    "optimisers": "freshband.federated.optimisers.base",
    "metrics": "freshband.federated.metrics.base",
    "loggers": "freshband.federated.loggers.base",
}


_SINGULAR = {"losses": "loss"}

# Settings that belong to no registered thing: the classes that declare them, each with a heading.
_FLEET = {
    "fleet": "freshband.fleet.conditions.SimulatedFleet",
    "fleet, what the server assumes": "freshband.fleet.options.FleetOptions",
}
_VALUATION = {"valuation": "freshband.federated.contribution.ValuationOptions"}
_TRAINING = {"training": "freshband.federated.settings.Training"}
_SETTINGS = {
    "fleet": _FLEET,
    "valuation": _VALUATION,
    "training": {**_TRAINING, **_VALUATION, **_FLEET},
}


def list_things(
    name: Annotated[
        str | None,
        typer.Argument(
            help="schedulers, channels, families, matchings, algorithms, datasets, models, "
            "partitions, losses, optimisers, metrics, loggers, experiments, the name of one, such "
            "as glr-cucb, fleet for the settings of a simulated fleet, training for all settings "
            "of a run, or valuation for those of contributions."
        ),
    ] = None,
) -> None:
    """List schedulers, channel models, matchings and server rules, or explain one of them.

    [bold]Examples[/bold]

      freshband list

      freshband list schedulers

      freshband list glr-cucb

      freshband list fleet

      freshband list training
    """
    from freshband.arena.families import FAMILIES
    from freshband.channels.base import registry as channels
    from freshband.federated.algorithms.base import registry as algorithms
    from freshband.matching.base import registry as matchings
    from freshband.schedulers.base import registry as schedulers

    kinds: dict[str, Any] = {
        "schedulers": schedulers,
        "channels": channels,
        "matchings": matchings,
        "algorithms": algorithms,
    }
    console = open_console()
    if name in _SETTINGS:
        for heading, where in _SETTINGS[name].items():
            module, _, declared = where.rpartition(".")
            thing = getattr(importlib.import_module(module), declared)
            _explain(console, "settings", heading, thing)
        return
    if name == "families" or (name in FAMILIES and name not in channels):
        console.print(_families(FAMILIES.values() if name == "families" else [FAMILIES[name]]))
        return
    if name is not None and name not in kinds and not any(name in each for each in kinds.values()):
        kinds |= _kinds_of_training(name)
    if name is None or name in kinds:
        for kind, registry in kinds.items():
            if name in (None, kind):
                console.print(_table(kind, registry))
        if name is None:
            console.print(
                "Explain one: [bold]freshband list NAME[/bold]; also families, datasets, models, "
                "partitions, losses, optimisers, metrics, loggers, experiments, fleet and training"
            )
        return
    found = [(kind, registry) for kind, registry in kinds.items() if name in registry]
    if not found:
        known = [each for registry in kinds.values() for each in registry] + list(kinds)
        known += [*_SETTINGS, "families", *FAMILIES]
        raise UnknownNameError(f"nothing is called {name!r}; {nearest(name, known)}")
    for kind, registry in found:
        _explain(console, kind, name, registry[name])


def _families(families: Iterable[Any]) -> Any:
    rows = []
    for each in families:
        options = ", ".join(f"{key}={value}" for key, value in each.options.items())
        made = f"{each.channels}({options})" if options else each.channels
        rows.append((each.name, each.about, made, str(each.clients), f"{each.rounds:,}"))
    head = ("family", "what it is", "channels", "clients", "rounds")
    return make_table("families of the arena", head, rows, right=head[3:])


def _kinds_of_training(name: str) -> dict[str, Any]:
    """Return the registries of training; where PyTorch is missing, those that do not need it."""
    found = {}
    for kind, module in _OF_TRAINING.items():
        try:
            found[kind] = importlib.import_module(module).registry
            found[kind].names()
        except ModuleNotFoundError:
            if name == kind:
                need_extra()
                raise
            found.pop(kind, None)
    return found


def _table(kind: str, registry: Any) -> Any:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=kind, title_justify="left", show_edge=False, box=None, pad_edge=False)
    table.add_column("name", style="bold", no_wrap=True)
    table.add_column("what it is")
    if kind == "schedulers":
        table.add_column("presets")
    for name in registry:
        thing = registry[name]
        row = [name, escape((inspect.getdoc(thing) or "").partition("\n")[0])]
        if kind == "schedulers":
            row.append(", ".join(preset for preset in thing.presets if preset != "default"))
        table.add_row(*row)
    return table


def _explain(console: Any, kind: str, name: str, thing: Any) -> None:
    from rich.markup import escape

    console.rule(
        f"[bold]{name}[/bold] ({_SINGULAR.get(kind, kind.removesuffix('s'))})", align="left"
    )
    console.print(escape(inspect.getdoc(thing) or ""), highlight=False, soft_wrap=True)
    presets = getattr(thing, "presets", {})
    for preset, values in presets.items() if len(presets) > 1 else ():
        given = ", ".join(f"{key}={value!r}" for key, value in values.items())
        console.print(f"preset [bold]{name}:{preset}[/bold]  {escape(given) or 'the defaults'}")
    if hasattr(thing, "needs"):
        console.print(f"needs {thing.needs()}", highlight=False)
