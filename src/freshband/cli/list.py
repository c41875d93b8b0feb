"""``freshband list``: what there is, and what each thing takes."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from freshband.errors import UnknownNameError, nearest

__all__ = ["list_things"]


def list_things(
    name: Annotated[
        str | None,
        typer.Argument(
            help="schedulers, channels, matchings, or the name of one, such as glr-cucb."
        ),
    ] = None,
) -> None:
    """List schedulers, channel models and matchings, or explain one of them.

    [bold]Examples[/bold]

      freshband list

      freshband list schedulers

      freshband list glr-cucb
    """
    from rich.console import Console

    from freshband.channels.base import registry as channels
    from freshband.matching.base import registry as matchings
    from freshband.schedulers.base import registry as schedulers

    kinds: dict[str, Any] = {
        "schedulers": schedulers,
        "channels": channels,
        "matchings": matchings,
    }
    console = Console()
    if not console.is_terminal:  # a pipe has no width: do not fold to 80 columns
        console = Console(width=200)
    if name is None or name in kinds:
        for kind, registry in kinds.items():
            if name in (None, kind):
                console.print(_table(kind, registry))
        if name is None:
            console.print("Explain one: [bold]freshband list NAME[/bold]")
        return
    found = [(kind, registry) for kind, registry in kinds.items() if name in registry]
    if not found:
        known = [each for registry in kinds.values() for each in registry] + list(kinds)
        raise UnknownNameError(f"nothing is called {name!r}; {nearest(name, known)}")
    for kind, registry in found:
        _explain(console, kind, name, registry[name])


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
            row.append(", ".join(preset for preset in thing.presets if preset != "corrected"))
        table.add_row(*row)
    return table


def _explain(console: Any, kind: str, name: str, thing: Any) -> None:
    from rich.markup import escape

    console.rule(f"[bold]{name}[/bold] ({kind.removesuffix('s')})", align="left")
    console.print(escape(inspect.getdoc(thing) or ""), highlight=False, soft_wrap=True)
    presets = getattr(thing, "presets", {})
    for preset, values in presets.items() if len(presets) > 1 else ():
        given = ", ".join(f"{key}={value!r}" for key, value in values.items())
        console.print(f"preset [bold]{name}:{preset}[/bold]  {escape(given) or 'the defaults'}")
