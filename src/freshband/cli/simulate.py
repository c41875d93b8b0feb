"""``freshband simulate``: compare policies over the same air."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from freshband.cli.settings import (
    AddressOption,
    Format,
    Where,
    WhereOption,
    check_options,
    given_options,
    read_number,
    read_settings,
)
from freshband.errors import ParameterError

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["simulate"]

# What a narrow terminal does without, in this order.
_SPARE = ("M rounds/s", "Jain", "oldest", "delay", "alarms", "cum. variance", "vs rotate")


class Measure(StrEnum):
    """What the plot shows."""

    regret = "regret"
    regret_rotate = "regret_rotate"
    regret_fixed = "regret_fixed"
    age = "age"
    variance = "variance"


def simulate(
    context: typer.Context,
    channels: Annotated[
        str, typer.Option(help="Channel model or named instance; see 'freshband list channels'.")
    ] = "piecewise",
    policies: Annotated[
        str,
        typer.Option(
            help="Comma-separated policies, each scheduler[:preset][+token...]; tokens are "
            "matchings (age, rotate, random, fixed; priority needs training), aa and aa-sum."
        ),
    ] = "random,m-exp3,glr-cucb",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="[POLICY.]KEY=VALUE",
            help="A parameter of the channels (key=value) or of a policy (POLICY.key=value), "
            "repeatable; 'freshband list NAME' tells which there are.",
        ),
    ] = None,
    clients: Annotated[
        int, typer.Option(parser=read_number, metavar="<int>", help="Number of clients M.")
    ] = 2,
    rounds: Annotated[
        int,
        typer.Option(
            parser=read_number,
            metavar="<int>",
            help="Number of rounds T; by default all of a shorter recording.",
        ),
    ] = 20_000,
    runs: Annotated[
        int,
        typer.Option(
            parser=read_number,
            metavar="<int>",
            help="Independent runs; policies share the air of each.",
        ),
    ] = 10,
    seed: Annotated[
        int,
        typer.Option(
            parser=read_number, metavar="<int>", help="The one seed everything derives from."
        ),
    ] = 0,
    points: Annotated[
        int, typer.Option(parser=read_number, metavar="<int>", help="Points of the saved curves.")
    ] = 200,
    threads: Annotated[
        int | None,
        typer.Option(
            parser=read_number,
            metavar="<int>",
            show_default="one a core",
            help="Runs at a time.",
        ),
    ] = None,
    backend: WhereOption = Where.threads,
    address: AddressOption = None,
    output: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.table,
    out: Annotated[
        Path | None, typer.Option(help="Save the result, with its configuration, as NetCDF.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw curves with standard-error bands (png, pdf, svg).")
    ] = None,
    measure: Annotated[
        Measure,
        typer.Option(
            metavar="MEASURE",  # the names alone would take half of a narrow page
            help=f"What the plot shows: {', '.join(Measure)}.",
        ),
    ] = Measure.regret,
    log: Annotated[
        bool, typer.Option("--log", help="Logarithmic axis, for policies orders apart.")
    ] = False,
    like: Annotated[
        Path | None,
        typer.Option(
            help="Repeat the configuration saved in this result; --clients, --rounds, --runs, "
            "--seed and --points may change it."
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
    from freshband import save_result, summarise
    from freshband import simulate as run_simulation
    from freshband.channels.base import at_most, build
    from freshband.files import check_writable
    from freshband.plugins import made_with

    if out is not None:
        check_writable(out)
    channel_options, policy_options = read_settings(settings or [])
    check_options(policy_options, [name.strip() for name in policies.split(",")], policy_options)
    request: dict[str, Any] = {
        "channels": channels,
        "channel_options": channel_options,
        "policies": policies,
        "policy_options": policy_options,
        "clients": clients,
        "rounds": rounds,
        "runs": runs,
        "seed": seed,
        "points": points,
    }
    given = given_options(context)
    if plot is None and given & {"measure", "log"}:
        raise ParameterError("--measure and --log say how curves are drawn: give --plot FILE too")
    kept: dict[str, Any] = {}
    if like is not None:
        request, kept = _repeat(like, request, given)
    with made_with(like, kept):
        model = build(request.pop("channels"), request.pop("channel_options"))
        if like is None and "rounds" not in given:
            request["rounds"] = at_most(rounds, model)
        if plot is not None:
            _check_plot(plot, out, measure.value, has_means=model.has_means)
        where: dict[str, Any] = {"threads": threads, "backend": backend.value, "address": address}
        result = run_simulation(model, **request, **where, progress=not quiet)
    if out is not None:
        save_result(result, out)
    if plot is not None:
        from freshband.reporting.curves import draw_curves, save_figure

        save_figure(draw_curves(result, measure.value, log=log), plot)
    if output is Format.json:
        sys.stdout.write(json.dumps(summarise(result), indent=2) + "\n")
    else:
        _print_table(result, [path for path in (out, plot) if path is not None])


def _repeat(
    like: Path, request: dict[str, Any], given: set[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the configuration saved in a result, with what else was asked for, and its facts."""
    from freshband import load_result
    from freshband.locating import find_again
    from freshband.simulation.result import read_config

    for name, option in {"channels": "channels", "policies": "policies", "settings": "set"}.items():
        if name in given:
            raise ParameterError(f"--like says what is simulated: leave out --{option}")
    result = load_result(like)
    saved = read_config(result)
    saved["channel_options"], notes = find_again(saved["channel_options"], Path(like).parent)
    for note in notes:
        typer.echo(f"note: {note}", err=True)
    wanted = {name: request[name] if name in given else value for name, value in saved.items()}
    return wanted, result.attrs


def _check_plot(plot: Path, out: Path | None, measure: str, *, has_means: bool) -> None:
    """Find out what cannot be drawn before any run begins."""
    from freshband.reporting.curves import check_figure, check_measure

    check_figure(plot)
    check_measure(measure, has_means=has_means)
    if out is not None and out.resolve() == plot.resolve():
        raise ParameterError(f"--out and --plot must name two files, got {plot} twice")


def _print_table(result: xr.Dataset, written: list[Path]) -> None:
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table

    from freshband import summarise

    summary = summarise(result)
    main = (
        "regret" if summary["policies"][str(result.policy.values[0])]["regret"] else "regret_fixed"
    )
    best = str(result[main].mean("run").idxmin("policy").item())
    columns = _columns(result, summary["policies"], main, best)
    console = Console()
    if not console.is_terminal:  # a pipe has no width: do not fold the table to 80 columns
        console = Console(width=200)
    dropped: list[str] = []
    while True:
        caption = _caption(main, best, summary, dropped)
        table = Table(title=_title(summary), caption=caption)
        table.add_column("policy", no_wrap=True)
        for heading in columns:
            table.add_column(heading, justify="right", overflow="fold")
        for i, name in enumerate(summary["policies"]):
            cells = [column[i] for column in columns.values()]
            table.add_row(f"[bold]{name}[/bold]" if name == best else name, *cells)
        width = Measurement.get(console, console.options.update(max_width=1000), table).maximum
        spare = [heading for heading in _SPARE if heading in columns]
        if width <= console.width or not spare:
            break
        del columns[spare[0]]
        dropped.append(spare[0])
    console.print(table)
    for path in written:
        console.print(f"wrote {path}", highlight=False, soft_wrap=True)


def _columns(
    result: xr.Dataset, rows: dict[str, Any], main: str, best: str
) -> dict[str, list[str]]:
    """Return the table's columns by heading, a cell for each policy."""
    from freshband.simulation.result import mean_and_error

    columns: dict[str, list[str]] = {}
    same = "same_air" in result.attrs
    for name, row in rows.items():
        speed = row["rounds_per_second"]
        difference = result[main].sel(policy=name) - result[main].sel(policy=best)
        behind = mean_and_error(difference.values)
        cells = {
            main: _cell(row[main], same_air=same),
            "vs rotate": _cell(row["regret_rotate"], same_air=same),
            "behind best": "—" if name == best else "+" + _cell(behind, same_air=same),
            "mean age": _cell(row["mean_age"], 3, same_air=same),
            "cum. variance": _cell(row["cumulative_variance"], same_air=same),
            "oldest": _cell(row["max_age"], error=False),
            "Jain": _cell(row["jain"], 3, error=False),
            "alarms": _cell(row["alarms"], 1, error=False),
            "delay": _cell(row["delay"], error=False),
            "M rounds/s": "—" if speed is None else f"{speed / 1e6:.1f}",
        }
        for heading, cell in cells.items():
            columns.setdefault(heading, []).append(cell)
    if main != "regret":
        del columns["vs rotate"]
    return columns


def _title(summary: dict[str, Any]) -> str:
    return (
        f"{summary['channels']}: {summary['clients']} clients, {summary['rounds']:,} rounds, "
        f"{summary['runs']} run{'s' if summary['runs'] > 1 else ''}, seed {summary['seed']}"
    )


def _caption(main: str, best: str, summary: dict[str, Any], dropped: list[str]) -> str:
    runs = summary["runs"]
    error = "mean ± standard error over runs" if runs > 1 else "one run: no standard errors"
    if runs > 1 and summary["channel_options"].get("offset") == "random":
        error += ", which begin at random rows of one recording and are not independent"
    if summary["same_air"]:
        error = (
            f"all {runs} runs met the same states, nothing in them is random: ± is the standard "
            "error of a policy's own random choices, left out where it makes none"
        )
        if summary["channels"] in ("trace", "table"):
            error += " (offset=random begins each run elsewhere in the recording)"
    yardstick = {
        "regret": "age beyond the mean+age oracle's",
        "regret_fixed": "age beyond the best fixed set's (these channels have no means)",
    }[main]
    caption = f"{error}; {main}: {yardstick}; behind best: paired difference to {best}"
    return caption + (f"; no room for {', '.join(dropped)}" if dropped else "")


def _cell(
    value: dict[str, float | None] | None,
    digits: int = 0,
    *,
    error: bool = True,
    same_air: bool = False,
) -> str:
    """Return a mean and its error; one of 0 is none where nothing could differ between runs."""
    if value is None or value["mean"] is None:
        return "—"
    text = f"{value['mean']:,.{digits}f}"
    if error and value["se"] is not None and not (same_air and value["se"] == 0):
        text += f" ± {value['se']:,.{digits}f}"
    return text
