"""``freshband arena``: schedulers side by side on families of instances."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from freshband.cli._options import Address, Backend, Quiet, Where, count
from freshband.cli._settings import given_options, print_json, read_settings, tell_notes
from freshband.cli._tables import make_table, open_console, print_written
from freshband.errors import ParameterError

if TYPE_CHECKING:
    import xarray as xr

    from freshband.arena import Family


_Format = StrEnum("_Format", ["table", "json", "csv", "latex", "markdown"])


def arena(
    context: typer.Context,
    family: Annotated[
        list[str] | None,
        typer.Option(
            "--family",
            metavar="NAME",
            help="A family of instances, a pattern such as 'jammer-*', or against-POLICY, "
            "repeatable; see 'freshband list families'.",
            show_default="all",
        ),
    ] = None,
    policies: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated policies, as for simulate; LABEL=scheduler{key=value,...} is one "
            "with settings of its own.",
            show_default="every scheduler that learns",
        ),
    ] = None,
    agent: Annotated[
        list[str] | None,
        typer.Option(
            "--agent",
            metavar="NAME",
            help="An agent for the Gymnasium environment that an imported file registers, "
            "repeatable; see examples/gym_agent.py.",
        ),
    ] = None,
    trace: Annotated[
        list[Path] | None,
        typer.Option(
            "--trace",
            metavar="FILE",
            help="A recording as a family of its own: every instance begins at a random row, with "
            "clients and channels in another order; repeatable.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="An option of the recordings, such as key=received; see 'freshband list trace'.",
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Ten times as many instances, as a publication needs.")
    ] = False,
    runs: Annotated[
        int | None, count("Instances of each family.", show_default="its own number")
    ] = None,
    rounds: Annotated[
        int | None, count("Most rounds of an instance.", show_default="its own number")
    ] = None,
    seed: Annotated[int, count("The seed that everything derives from.")] = 0,
    limit: Annotated[
        float | None,
        typer.Option(
            help="Seconds that a policy may take for a family; one that would take longer is "
            "listed as not run.",
            show_default="10, with --full 600",
        ),
    ] = None,
    threads: Annotated[int | None, count("Pieces at a time.", show_default="one per core")] = None,
    backend: Backend = Where.threads,
    address: Address = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for the result, tables and pictures. What is computed is kept there piece "
            "by piece: the same command goes on after an interruption, or with more policies.",
        ),
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option(
            metavar="arena.nc",
            help="Repeat the contest saved in this file; --runs, --rounds, --seed and --limit may "
            "change it.",
        ),
    ] = None,
    output: Annotated[_Format, typer.Option("--format", help="How to print.")] = _Format.table,
    quiet: Quiet = False,
) -> None:
    """Let schedulers compete on families of instances, paired.

    In every family all policies meet the same instances. A policy beats another in
    a family if the paired 95 % interval of the difference of their mean ages says
    so. A scheduler of your own enters with --import; check it with 'freshband
    check' first.

    [bold]Examples[/bold]

      freshband arena --out arena

      freshband arena --family stationary --family 'jammer-*' --policies random,bayes

      freshband --import my_scheduler.py arena --policies epsilon-greedy,bayes --out arena

      freshband arena --policies 'fast=cucb{mean_window=200},slow=cucb{mean_window=2000}'

      freshband arena --trace air.csv --policies bayes,random --format json

      freshband arena --like arena/arena.nc --seed 1 --out again
    """
    from freshband._files import check_writable
    from freshband._plugins import made_with
    from freshband.arena import FAMILIES, compete

    if out is not None:
        check_writable(out / "arena.nc")
    given = given_options(context)
    request: dict[str, Any] = {"seed": seed, "limit": limit}
    made: dict[str, Any] = {}
    if like is None:
        wanted = _find_families(family, trace or [], settings or [])
        request |= {"policies": policies, "families": wanted, "agents": agent or [], "full": full}
    else:
        again, made = _repeat(like, given)
        request = again | {name: request[name] for name in request if name in given}
    request |= {"runs": runs, "rounds": rounds}
    where: dict[str, Any] = {"threads": threads, "backend": backend.value, "address": address}
    try:
        with made_with(like, made):
            pieces = None if out is None else out / "pieces"
            result = compete(**request, **where, progress=not quiet, keep=pieces)
    except KeyboardInterrupt:
        kept = "nothing is kept without --out" if out is None else "the same command goes on"
        typer.echo(f"stopped; {kept}", err=True)
        raise
    written = [] if out is None else _write(result, out)
    _print(result, output)
    if output is _Format.table:
        print_written(written)
        if request["families"] is None and len(FAMILIES) < result.sizes["family"]:
            typer.echo("a table against a policy, against-NAME, is made of each deterministic one")


def _find_families(
    names: list[str] | None, traces: list[Path], settings: list[str]
) -> list[Family] | None:
    """Return the families that the command line names, or None for all."""
    from freshband.arena import pick_families, trace_family

    options, others = read_settings(settings)
    if others or (options and not traces):
        raise ParameterError("--set is for recordings: give --trace FILE, and key=value alone")
    if names is None and not traces:
        return None
    recorded = [trace_family(path, **options) for path in traces]
    return [*(pick_families(names) if names else []), *recorded]


def _repeat(like: Path, given: set[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the request that made a result, with files found again, and its attributes."""
    from freshband._locating import find_again
    from freshband.arena import load_arena, read_request

    names = ("family", "policies", "agent", "trace", "full")
    options = {**{name: name for name in names}, "settings": "set"}
    for name, option in options.items():
        if name in given:
            raise ParameterError(f"--like says who competes where: leave out --{option}")
    result = load_arena(like)
    request = read_request(result)
    families = []
    for each in request["families"]:
        found, notes = find_again(each.options, like.parent)
        families.append(replace(each, options=found))
        tell_notes(notes)
    return {**request, "families": families}, result.attrs


def _write(result: xr.Dataset, out: Path) -> list[Path]:
    """Write the result in all forms."""
    import json

    from freshband._files import write_whole
    from freshband.arena import save_arena, summarise_arena
    from freshband.reporting import arena as tables
    from freshband.reporting.curves import save_figure

    save_arena(result, out / "arena.nc")
    texts = {
        "arena.json": json.dumps(summarise_arena(result), indent=2) + "\n",
        "arena.csv": tables.as_csv(result),
        "arena.tex": tables.as_latex(result),
        "arena.md": _markdown(result),
    }
    for name, text in texts.items():
        write_whole(out / name, text.encode())
    drawn = {"regret.png": "regret", "age.png": "age"}
    for name, measure in drawn.items():
        save_figure(tables.draw_arena(result, measure), out / name)
    return [out / name for name in ("arena.nc", *texts, *drawn)]


def _markdown(result: xr.Dataset) -> str:
    from freshband.reporting import arena as tables

    made = (tables.ranking, tables.families, tables.ages, tables.wins)
    return tables.as_markdown(*(make(result) for make in made))


def _print(result: xr.Dataset, output: _Format) -> None:
    from freshband.arena import summarise_arena
    from freshband.reporting import arena as tables

    if output is _Format.json:
        print_json(summarise_arena(result))
    elif output is not _Format.table:
        write = {"csv": tables.as_csv, "latex": tables.as_latex, "markdown": _markdown}
        typer.echo(write[output.value](result), nl=False)
    else:
        console = open_console()
        shown = [tables.families(result), tables.ranking(result)]
        if result.sizes["policy"] <= 8:
            shown.insert(1, tables.wins(result))
        for table in shown:
            right = table.head[1:] if table.head[1] != "what it is" else table.head[3:]
            console.print(make_table(table.caption, table.head, table.rows, right=right))
        for told in tables.not_run(result):
            console.print(told, highlight=False)
