"""``freshband simulate``: compare policies over the same air (channel environment)."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from freshband.cli._formats import print_result
from freshband.cli._options import Address, Backend, Format, Output, Quiet, Where, count
from freshband.cli._playing import keeping
from freshband.cli._settings import (
    check_options,
    check_outputs,
    given_options,
    read_settings,
    split_fleet,
    tell_notes,
)
from freshband.cli._tables import print_policies, print_written
from freshband.errors import ParameterError, UnknownNameError, nearest, shown

if TYPE_CHECKING:
    import xarray as xr

    from freshband.arena.families import Family

# Columns that a narrow terminal leaves out, in this order.
_SPARE = ("M rounds/s", "Jain", "oldest", "delay", "alarms", "cum. variance", "vs rotate")


_LEARN_LATE = (
    "random,glr-cucb,bayes"  # the default where outcomes are late; m-exp3 cannot learn then
)
_Measure = StrEnum("_Measure", ["regret", "regret_rotate", "regret_fixed", "age", "variance"])


def simulate(
    context: typer.Context,
    channels: Annotated[
        str,
        typer.Option(
            help="Channel model or named instance, see 'freshband list channels', or a family of "
            "the arena with its clients and rounds, see 'freshband list families'."
        ),
    ] = "piecewise",
    policies: Annotated[
        str,
        typer.Option(
            help="Comma-separated policies, each scheduler[:preset][+token...]; tokens are "
            "matchings (age, rotate, random, fixed; priority needs training), aa and aa-sum. "
            "LABEL=scheduler{key=value,...} is one with settings of its own. "
            "Where outcomes are late, the default leaves out m-exp3, which cannot learn then."
        ),
    ] = "random,m-exp3,glr-cucb,bayes",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="[POLICY.]KEY=VALUE",
            help="A parameter of the channels or of the fleet (key=value), or of a policy "
            "(POLICY.key=value), repeatable; 'freshband list NAME' and 'freshband list fleet' "
            "list them.",
        ),
    ] = None,
    clients: Annotated[int, count("Number of clients M, also more than channels.")] = 2,
    rounds: Annotated[
        int, count("Number of rounds T; by default all of a shorter recording.")
    ] = 20_000,
    runs: Annotated[int, count("Independent runs; policies share the air of each.")] = 10,
    seed: Annotated[int, count("The seed that everything derives from.")] = 0,
    points: Annotated[int, count("Number of points of the saved curves.")] = 200,
    threads: Annotated[int | None, count("Runs at a time.", show_default="one per core")] = None,
    backend: Backend = Where.threads,
    address: Address = None,
    output: Output = Format.table,
    out: Annotated[
        Path | None, typer.Option(help="Save the result, with its configuration, as NetCDF.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw curves with standard-error bands (png, pdf, svg).")
    ] = None,
    measure: Annotated[
        _Measure,
        typer.Option(
            metavar="MEASURE",  # the names alone would take half of a narrow page
            help=f"What the plot shows: {', '.join(_Measure)}.",
        ),
    ] = _Measure.regret,
    log: Annotated[
        bool,
        typer.Option(
            "--log", help="Logarithmic axis, for policies that differ by orders of magnitude."
        ),
    ] = False,
    like: Annotated[
        Path | None,
        typer.Option(
            help="Repeat the configuration saved in this result; --clients, --rounds, --runs, "
            "--seed and --points may change it."
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Compare policies over the same air: ages, regret, fairness.

    The air is the channel environment. Every policy meets the same channel states in every run, so
    differences are paired.
    [bold]regret[/bold] is the age summed over clients and rounds beyond that of an oracle that
    knows the current means and gives the oldest client the best channel;
    [bold]regret_rotate[/bold] lets that oracle take turns, as in the paper.

    [bold]Fleet.[/bold] There may be more clients than channels, acknowledgements may be late or
    lost, clients and channels may come and go: see 'freshband list fleet'. The oracle still learns
    at once who is there and what was delivered.

    [bold]Examples[/bold]

      freshband simulate --policies random,glr-cucb:paper,glr-cucb+aa --runs 20 --plot regret.png

      freshband simulate --channels switching --set hazard=0.01 --policies m-exp3,glr-cucb

      freshband simulate --policies m-exp3 --set m-exp3.gamma=0.1 --format json

      freshband simulate --policies 'fast=cucb{mean_window=200},slow=cucb{mean_window=2000}'

      freshband simulate --channels trace --set path=FILE.npz --set key=received

      freshband simulate --clients 20 --set n_channels=5 --set max_transmissions=3

      freshband simulate --policies bayes,glr-cucb --set ack_delay=5 --set ack_loss=0.2

      freshband simulate --policies bayes --clients 8 --set churn=1000 --set proof_of_life=delivery
    """
    from freshband import save_result, summarise
    from freshband import simulate as run_simulation
    from freshband._plugins import made_with
    from freshband._policy import split_policies
    from freshband.channels.base import _at_most, build

    check_outputs(out, plot)
    plain_options, policy_options = read_settings(settings or [])
    given = given_options(context)
    air = _find_family(channels)
    if air is not None:
        plain_options = {**air.options, **plain_options}
        clients = clients if "clients" in given else air.clients
        rounds = rounds if "rounds" in given else air.rounds
        channels = air.channels
        if channels == "against":  # as many clients as play now
            plain_options = {"n_clients": clients, **plain_options}
    channel_options, fleet = split_fleet(channels, plain_options)
    if "policies" not in given and fleet.get("ack_delay"):
        policies = _LEARN_LATE
    check_options(policy_options, split_policies(policies), policy_options)
    request: dict[str, Any] = {
        "channels": channels,
        "channel_options": channel_options,
        "policies": policies,
        "policy_options": policy_options,
        "fleet": fleet,
        "clients": clients,
        "rounds": rounds,
        "runs": runs,
        "seed": seed,
        "points": points,
    }
    if plot is None and given & {"measure", "log"}:
        raise ParameterError("--measure and --log say how curves are drawn: give --plot FILE too")
    kept: dict[str, Any] = {}
    if like is not None:
        request, kept = _repeat(like, request, given)
    with made_with(like, kept):
        model = build(request.pop("channels"), request.pop("channel_options"))
        if like is None and "rounds" not in given:
            request["rounds"] = _at_most(rounds, model)
        if plot is not None:
            from freshband.reporting._fleet import fleet_of
            from freshband.reporting.curves import _check_measure, draw_curves, save_figure
            from freshband.simulation._players import is_papers_problem

            plain = is_papers_problem(model, fleet_of(request), request["clients"])
            _check_measure(measure.value, has_means=model.has_means, rotates=plain)
        where: dict[str, Any] = {"threads": threads, "backend": backend.value, "address": address}
        with keeping(out):
            result = run_simulation(model, **request, **where, progress=not quiet, keep=out)
            if out is not None:
                save_result(result, out)
    if plot is not None:
        save_figure(draw_curves(result, measure.value, log=log), plot)
    summary = summarise(result)
    title, caption, columns = _table(result, summary)
    if not print_result(output, "simulate", summary, columns):
        print_policies(title, caption, columns, _SPARE)
        print_written([out, plot])


def _find_family(name: str) -> Family | None:
    """Return the family of a name that is not a channel model's, or None."""
    from freshband.arena.families import FAMILIES, family
    from freshband.channels.base import registry

    if name in registry:
        return None
    if name not in FAMILIES and not name.startswith("against-"):
        known = [*registry, *FAMILIES]
        raise UnknownNameError(f"unknown channel model {shown(name)}; {nearest(name, known)}")
    return family(name)


def _repeat(
    like: Path, request: dict[str, Any], given: set[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the configuration of a result with the changes requested, and its attributes."""
    from freshband import load_result
    from freshband._locating import find_again
    from freshband.simulation.result import _read_config

    for name, option in {"channels": "channels", "policies": "policies", "settings": "set"}.items():
        if name in given:
            raise ParameterError(f"--like says what is simulated: leave out --{option}")
    result = load_result(like)
    saved = _read_config(result)
    saved["channel_options"], notes = find_again(saved["channel_options"], Path(like).parent)
    tell_notes(notes)
    wanted = {name: request[name] if name in given else value for name, value in saved.items()}
    return wanted, result.attrs


def _table(result: xr.Dataset, summary: dict[str, Any]) -> tuple[str, str, dict[str, list[str]]]:
    """Return the title, the caption and the columns of the table."""
    from freshband.reporting._fleet import describe_fleet
    from freshband.reporting._numbers import counted

    main = (
        "regret" if summary["policies"][str(result.policy.values[0])]["regret"] else "regret_fixed"
    )
    best = str(result[main].mean("run").idxmin("policy").item())
    title = (
        f"{summary['channels']}: {summary['clients']} clients, {summary['rounds']:,} rounds, "
        f"{counted(summary['runs'], 'run')}, seed {summary['seed']}"
    )
    if fleet := describe_fleet(summary):
        title += f"\nfleet: {fleet}"
    columns = _columns(result, summary["policies"], main, best)
    return title, _caption(main, best, summary), columns


def _columns(
    result: xr.Dataset, rows: dict[str, Any], main: str, best: str
) -> dict[str, list[str]]:
    """Return the table's columns by heading, a cell for each policy."""
    from freshband.reporting._numbers import MISSING, with_digits
    from freshband.statistics import mean_and_error

    same_air = "same_air" in result.attrs

    def cell(value: dict[str, float | None] | None, digits: int = 0, *, error: bool = True) -> str:
        """Return a mean and its error; 0 is none where nothing could differ between runs."""
        mean, se = (value["mean"], value["se"]) if value else (None, None)
        return with_digits(mean, digits, se if error and not (same_air and se == 0) else None)

    columns: dict[str, list[str]] = {}
    for name, row in rows.items():
        speed = row["rounds_per_second"]
        difference = result[main].sel(policy=name) - result[main].sel(policy=best)
        behind = "+" + cell(mean_and_error(difference.values))
        cells = {
            "policy": f"[bold]{name}[/bold]" if name == best else name,
            main: cell(row[main]),
            "vs rotate": cell(row["regret_rotate"]),
            "behind best": MISSING if name == best else behind,
            "mean age": cell(row["mean_age"], 3),
            "cum. variance": cell(row["cumulative_variance"]),
            "oldest": cell(row["max_age"], error=False),
            "Jain": cell(row["jain"], 3, error=False),
            "alarms": cell(row["alarms"], 1, error=False),
            "delay": cell(row["delay"], error=False),
            "M rounds/s": with_digits(None if speed is None else speed / 1e6, 1),
        }
        for heading, text in cells.items():
            columns.setdefault(heading, []).append(text)
    if bool(result.regret_rotate.isnull().all()):
        del columns["vs rotate"]
    return columns


def _caption(main: str, best: str, summary: dict[str, Any]) -> str:
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
    fleet = summary.get("fleet", {})
    if fleet:
        yardstick += ", which learns at once who is there and what was delivered"
    if "weights" in fleet:
        yardstick += "; ages are weighted by client"
    return f"{error}; {main}: {yardstick}; behind best: paired difference to {best}"
