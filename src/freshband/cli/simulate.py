"""``freshband simulate``: compare policies over the same air."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from freshband.cli.settings import read_settings
from freshband.errors import ParameterError

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["simulate"]


class Format(StrEnum):
    """How results are printed."""

    table = "table"
    json = "json"


class Measure(StrEnum):
    """What the plot shows."""

    regret = "regret"
    regret_rotate = "regret_rotate"
    regret_fixed = "regret_fixed"
    age = "age"
    variance = "variance"


def simulate(
    channels: Annotated[
        str, typer.Option(help="Channel model or named instance; see 'freshband list channels'.")
    ] = "piecewise",
    policies: Annotated[
        str,
        typer.Option(
            help="Comma-separated policies, each scheduler[:preset][+token...]; tokens are "
            "matchings (age, rotate, random, fixed), aa and aa-sum."
        ),
    ] = "random,m-exp3,glr-cucb",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="[POLICY.]KEY=VALUE",
            help="A parameter of the channels (key=value) or of a policy (POLICY.key=value); "
            "may be repeated.",
        ),
    ] = None,
    clients: Annotated[int, typer.Option(help="Number of clients M.")] = 2,
    rounds: Annotated[int, typer.Option(help="Number of rounds T.")] = 20_000,
    runs: Annotated[
        int, typer.Option(help="Independent runs; policies share the air of each.")
    ] = 10,
    seed: Annotated[int, typer.Option(help="The one seed everything derives from.")] = 0,
    points: Annotated[int, typer.Option(help="Points of the saved curves.")] = 200,
    threads: Annotated[
        int | None, typer.Option(help="Runs at a time [default: one a core].")
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.table,
    out: Annotated[
        Path | None, typer.Option(help="Save the result, with its configuration, as NetCDF.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw curves with standard-error bands (png, pdf, svg).")
    ] = None,
    measure: Annotated[Measure, typer.Option(help="What the plot shows.")] = Measure.regret,
    like: Annotated[
        Path | None,
        typer.Option(
            help="Repeat the configuration saved in this result; other options of the "
            "simulation are then taken from it."
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
) -> None:
    """Compare policies over the same air: ages, regret, fairness.

    Every policy meets the same channel states in every run, so differences are paired.
    [bold]regret[/bold] is the age summed over clients and rounds beyond that of an oracle that
    knows the current means and gives the oldest client the best channel;
    [bold]regret_rotate[/bold] lets that oracle take turns, as in the paper.

    [bold]Examples[/bold]

      freshband simulate --policies random,glr-cucb:paper,glr-cucb+aa --runs 20 --plot regret.png

      freshband simulate --channels switching --set hazard=0.01 --policies m-exp3,glr-cucb

      freshband simulate --policies m-exp3 --set m-exp3.gamma=0.1 --format json

      freshband simulate --channels trace --set path=FILE.npz --set key=received
    """
    from freshband import load_result, save_result, summarise
    from freshband import simulate as run_simulation
    from freshband.reporting.curves import draw_curves, save_figure
    from freshband.simulation.result import check_writable

    for path in (out, plot):
        if path is not None:
            check_writable(path)
    channel_options, policy_options = read_settings(settings or [])
    request: dict[str, Any] = {
        "channels": channels,
        "channel_options": channel_options,
        "policies": [name.strip() for name in policies.split(",")],
        "policy_options": policy_options,
        "clients": clients,
        "rounds": rounds,
        "runs": runs,
        "seed": seed,
        "points": points,
    }
    if like is not None:
        if settings:
            raise ParameterError("--like takes all settings from the file: leave out --set")
        request = json.loads(load_result(like).attrs["config"])
    result = run_simulation(**request, threads=threads, progress=not quiet)
    if out is not None:
        save_result(result, out)
    if plot is not None:
        save_figure(draw_curves(result, measure.value), plot)
    if output is Format.json:
        sys.stdout.write(json.dumps(summarise(result), indent=2) + "\n")
    else:
        _print_table(result, [path for path in (out, plot) if path is not None])


def _print_table(result: xr.Dataset, written: list[Path]) -> None:
    from rich.console import Console
    from rich.table import Table

    from freshband import summarise

    summary = summarise(result)
    main = (
        "regret" if summary["policies"][str(result.policy.values[0])]["regret"] else "regret_fixed"
    )
    best = str(result[main].mean("run").idxmin("policy").item())
    table = Table(title=_title(summary), caption=_caption(main, best, summary["runs"]))
    table.add_column("policy", no_wrap=True)
    headings = [
        "behind best",
        "growth",
        "mean age",
        "cum. variance",
        "oldest",
        "Jain",
        "alarms",
        "delay",
        "M rounds/s",
    ]
    for heading in [main, *(["vs rotate"] if main == "regret" else []), *headings]:
        table.add_column(heading, justify="right")
    for name, row in summary["policies"].items():
        cells = [_cell(row[main])]
        if main == "regret":
            cells.append(_cell(row["regret_rotate"]))
        cells += [
            "—" if name == best else _paired(result, main, name, best),
            "—" if row["growth_exponent"] is None else f"T^{row['growth_exponent']:.2f}",
            _cell(row["mean_age"], 3),
            _cell(row["cumulative_variance"]),
            _cell(row["max_age"], error=False),
            _cell(row["jain"], 3, error=False),
            _cell(row["alarms"], 1, error=False) if row["alarms"]["mean"] else "—",
            _cell(row["delay"], error=False) if row["alarms"]["mean"] else "—",
            f"{row['rounds_per_second'] / 1e6:.1f}",
        ]
        table.add_row(f"[bold]{name}[/bold]" if name == best else name, *cells)
    console = Console()
    if not console.is_terminal:  # a pipe has no width: do not fold the table to 80 columns
        console = Console(width=200)
    console.print(table)
    for path in written:
        console.print(f"wrote {path}", highlight=False, soft_wrap=True)


def _title(summary: dict[str, Any]) -> str:
    return (
        f"{summary['channels']}: {summary['clients']} clients, {summary['rounds']:,} rounds, "
        f"{summary['runs']} runs, seed {summary['seed']}"
    )


def _caption(main: str, best: str, runs: int) -> str:
    error = "mean ± standard error over runs" if runs > 1 else "one run: no standard errors"
    yardstick = {
        "regret": "age beyond the mean+age oracle's",
        "regret_fixed": "age beyond the best fixed set's (these channels have no means)",
    }[main]
    return f"{error}; {main}: {yardstick}; behind best: paired difference to {best}"


def _cell(value: dict[str, float | None] | None, digits: int = 0, error: bool = True) -> str:
    if value is None or value["mean"] is None:
        return "—"
    text = f"{value['mean']:,.{digits}f}"
    if error and value["se"] is not None:
        text += f" ± {value['se']:,.{digits}f}"
    return text


def _paired(result: xr.Dataset, measure: str, name: str, best: str) -> str:
    difference = (result[measure].sel(policy=name) - result[measure].sel(policy=best)).values
    text = f"+{difference.mean():,.0f}"
    if len(difference) > 1:
        text += f" ± {difference.std(ddof=1) / len(difference) ** 0.5:,.0f}"
    return text
