"""Wires the commands together; heavy imports wait inside the commands, so help is instant."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from freshband import __version__
from freshband.cli import list as list_command
from freshband.cli import show as show_command
from freshband.cli import simulate as simulate_command
from freshband.errors import FileError, FreshbandError

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
    plugins: Annotated[
        list[Path] | None,
        typer.Option(
            "--import",
            metavar="FILE.py",
            help="Import a file first, and with it the schedulers, channel models and matchings "
            "it registers; may be repeated.",
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Hold the options of the program itself."""
    for path in plugins or []:
        _import_file(path)


def _import_file(path: Path) -> None:
    """Import a file of the user's, whatever folder it is in."""
    import importlib.util

    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileError(f"cannot import {path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # compiled states are looked up by their module's name
    try:
        spec.loader.exec_module(module)
    except FreshbandError:
        raise
    except Exception as error:
        line = traceback.extract_tb(error.__traceback__)[-1]
        raise FileError(
            f"cannot import {path}: {type(error).__name__} in {line.filename}, line "
            f"{line.lineno}: {error}"
        ) from None


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
