"""``freshband bounds``: theoretical bounds on regret beside a short simulation."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from freshband.cli._formats import print_result
from freshband.cli._options import Format, Output, Quiet, count
from freshband.cli._settings import check_outputs
from freshband.cli._tables import make_table, open_console, print_written
from freshband.errors import ParameterError

if TYPE_CHECKING:
    import xarray as xr

    from freshband.channels.base import ChannelModel
    from freshband.theory.overview import Air, BoundEntry


def bounds(
    clients: Annotated[int, count("Number of clients M.")] = 2,
    n_channels: Annotated[int, count("Number of channels N.")] = 5,
    rounds: Annotated[int, count("Number of rounds T.")] = 20_000,
    breakpoints: Annotated[
        int, count("Number of breakpoints of the air; the theorems' C_T is one more.")
    ] = 5,
    policies: Annotated[
        str, typer.Option(help="Policies to simulate, as in 'freshband simulate'.")
    ] = "random,m-exp3,glr-cucb:paper,glr-cucb",
    runs: Annotated[int, count("Number of independent runs.")] = 5,
    seed: Annotated[int, count("The seed that everything derives from.")] = 0,
    output: Output = Format.table,
    plot: Annotated[
        Path | None, typer.Option(help="Draw regret with the bounds in it (png, pdf, svg).")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Print every bound on AoI regret, as printed and corrected, beside a short simulation.

    Lower bounds are about the air (channel environment) that is worst for a policy, not the
    simulated one. Upper bounds use the means of the simulated air. A bound that no policy can
    exceed anyway [bold]says nothing[/bold], and one whose conditions fail proves nothing: both are
    marked.

    [bold]Examples[/bold]

      freshband bounds --clients 2 --n-channels 5 --rounds 20000 --breakpoints 5

      freshband bounds --breakpoints 0 --rounds 100000 --plot bounds.png
    """
    from freshband import simulate
    from freshband.channels.base import build
    from freshband.parameters import whole_number
    from freshband.theory.overview import describe_air, list_bounds

    check_outputs(None, plot)
    model = build("piecewise", {"n_channels": n_channels, "n_breakpoints": breakpoints})
    clients = whole_number("clients", clients, at_least=1)
    if clients > model.n_channels:
        raise ParameterError(
            f"clients must be at most the number of channels, {model.n_channels}, got {clients}"
        )
    result = simulate(
        model, policies, clients=clients, rounds=rounds, runs=runs, seed=seed, progress=not quiet
    )
    air = describe_air(_means(model, rounds, runs, seed), clients)
    setting = (int(clients), int(n_channels), int(rounds), int(breakpoints) + 1)
    entries = list_bounds(*setting, air)
    if plot is not None:
        from freshband.reporting.bounds import draw_bounds
        from freshband.reporting.curves import save_figure

        curves = list_bounds(*setting[:2], result["round"].values, setting[3], air)
        save_figure(draw_bounds(result, curves), plot)
    if not print_result(output, "bounds", _report(setting, air, entries, result)):
        _print_tables(setting, air, entries, result)
        print_written([plot])


def _means(model: ChannelModel, rounds: int, runs: int, seed: int) -> Any:
    """Return the means of all segments in all runs, shape (segments of all runs, N)."""
    import numpy as np

    from freshband.channels.base import open_air

    return np.concatenate(
        [
            np.unique(open_air(model, rounds, seed, run).block(rounds).means, axis=0)
            for run in range(int(runs))
        ]
    )


def _says_nothing(entry: BoundEntry, entries: list[BoundEntry]) -> bool:
    value = float(entry.bound.value)
    if entry.bound.kind == "lower":
        return value <= 0
    return value > float(entries[-1].bound.value)


def _report(
    setting: tuple[int, int, int, int], air: Air, entries: list[BoundEntry], result: xr.Dataset
) -> dict[str, Any]:
    from freshband import summarise

    constants = {
        name: value if math.isfinite(value) else None for name, value in air._asdict().items()
    }
    return {
        "clients": setting[0],
        "n_channels": setting[1],
        "rounds": setting[2],
        "n_segments": setting[3],
        "air": constants,
        "bounds": [
            {
                "result": entry.result,
                "variant": entry.variant,
                "kind": entry.bound.kind,
                "value": float(entry.bound.value),
                "holds": bool(entry.bound.holds),
                "failing": entry.bound.failing,
                "says_nothing": _says_nothing(entry, entries),
                "about": entry.about,
            }
            for entry in entries
        ],
        "simulation": summarise(result),
    }


def _print_tables(
    setting: tuple[int, int, int, int], air: Air, entries: list[BoundEntry], result: xr.Dataset
) -> None:
    from freshband import summarise
    from freshband.reporting._numbers import counted, with_digits

    clients, n_channels, rounds, segments = setting
    gap = f"{air.gap:.3g}" if math.isfinite(air.gap) else "none"
    rows = []
    for entry in entries:
        sign = "≥" if entry.bound.kind == "lower" else "≤"
        doubts = [f"fails: {name}" for name in entry.bound.failing]
        if _says_nothing(entry, entries):
            doubts.append("says nothing")
        value = float(entry.bound.value)
        bound = f"{sign} {with_digits(value, 1 if value < 1000 else 0)}"
        rows.append((entry.result, entry.variant, bound, entry.about, "; ".join(doubts)))
    console = open_console()
    console.print(
        make_table(
            f"AoI regret: {clients} clients, {n_channels} channels, {rounds:,} rounds, "
            f"{counted(segments, 'segment')}",
            ("result", "variant", "bound", "about", "but"),
            rows,
            caption=f"air of the simulation: least mean {air.worst:.3g}, least of the oracle's "
            f"{air.best:.3g}, least gap {gap}",
            right=["bound"],
        )
    )
    regrets = {"regret": "regret, oracle by age", "regret_rotate": "regret, oracle by turns"}
    simulated = [
        (name, *(with_digits(row[one]["mean"], 0, row[one]["se"]) for one in regrets))
        for name, row in summarise(result)["policies"].items()
    ]
    title = f"simulated: piecewise air, {result.sizes['run']} runs"
    head = ("policy", *regrets.values())
    console.print(make_table(title, head, simulated, right=head[1:]))
