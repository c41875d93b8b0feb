"""Wires the commands together; heavy imports wait inside the commands, so help is instant."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from freshband import __version__
from freshband.cli import list as list_command
from freshband.cli import show as show_command
from freshband.cli import simulate as simulate_command
from freshband.errors import FreshbandError

__all__ = ["app", "main"]

app = typer.Typer(
    name="freshband",
    help=(
        "Fresh model updates over channels nobody can trust.\n\n"
        "M clients share N channels of unknown, changing quality. Compare the schedulers that "
        "decide, each round and from acknowledgements alone, which client uses which channel.\n\n"
        "Start here:  freshband simulate --policies random,glr-cucb --runs 20 --plot regret.png"
    ),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.command("simulate")(simulate_command.simulate)
app.command("show")(show_command.show)
app.command("list")(list_command.list_things)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"freshband {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Hold the options of the program itself."""


def main() -> None:
    """Run the command line: errors of the user end with exit code 2 and one line."""
    try:
        app()
    except FreshbandError as error:
        typer.secho("error: ", fg="red", bold=True, err=True, nl=False)
        typer.echo(str(error), err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.echo("interrupted: nothing was written", err=True)
        sys.exit(130)
    except BrokenPipeError:  # the reader, such as head, has seen enough
        sys.stderr.close()
        sys.exit(141)
