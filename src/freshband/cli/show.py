"""``freshband show``: draw the air (channel environment) of a channel model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from freshband.cli._options import count
from freshband.cli._settings import given_options, read_settings
from freshband.errors import ParameterError


def show(
    context: typer.Context,
    channels: Annotated[
        str,
        typer.Argument(help="Channel model or named instance; see 'freshband list channels'."),
    ] = "piecewise",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A parameter of the channels, repeatable; 'freshband list NAME' lists them.",
        ),
    ] = None,
    rounds: Annotated[
        int, count("Number of rounds T; by default all of a shorter recording.")
    ] = 20_000,
    seed: Annotated[int, count("Seed; the same air as in 'simulate'.")] = 0,
    run: Annotated[int, count("Which of the independent runs, from 0.")] = 0,
    clients: Annotated[
        int | None,
        count("Number of clients M, where links differ per client.", show_default="as recorded"),
    ] = None,
    out: Annotated[Path, typer.Option(help="Picture to write (png, pdf, svg).")] = Path(
        "channels.png"
    ),
) -> None:
    """Draw a channel model's means and states as a picture.

    [bold]Examples[/bold]

      freshband show piecewise --set n_channels=8 --set n_breakpoints=3

      freshband show jammer --set pattern=sweep --set dwell=200 --rounds 5000 --out jammer.pdf

      freshband show trace --set path=FILE.csv

      freshband show piecewise --set per_client=true --set offset_sd=2 --clients 6
    """
    from freshband.channels.base import _at_most, build
    from freshband.reporting.channel_map import draw
    from freshband.reporting.curves import _check_figure, save_figure

    _check_figure(out)
    channel_options, policy_options = read_settings(settings or [])
    if policy_options:
        raise ParameterError("show has no policies: --set must be key=value")
    model = build(channels, channel_options)
    if "rounds" not in given_options(context):
        rounds = _at_most(rounds, model)
    save_figure(draw(model, rounds, seed, run, clients), out)
    typer.echo(f"wrote {out}")
