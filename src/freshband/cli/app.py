"""The program with all commands; heavy imports are inside the commands, so help is instant."""

from __future__ import annotations

import functools
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, cast

import typer
from typer.main import get_command

from freshband import __version__
from freshband._plugins import import_file
from freshband.cli import flower
from freshband.cli._folding import Command, Group
from freshband.cli._playing import insisting, interrupt
from freshband.cli.arena import arena
from freshband.cli.bounds import bounds
from freshband.cli.check import check
from freshband.cli.compare import compare
from freshband.cli.export import export
from freshband.cli.list import list_things
from freshband.cli.report import report
from freshband.cli.reproduce import ReproduceCommand, reproduce
from freshband.cli.serve import serve
from freshband.cli.show import show
from freshband.cli.simulate import simulate
from freshband.cli.train import train
from freshband.errors import FreshbandError, ParameterError

# What all of typer's own complaints derive from; typer has no public name for it.
_UsageError = cast(type[Exception], typer.BadParameter.__mro__[2])
_INTERRUPTED = 130
_COMPLETE: Final = "_FRESHBAND_COMPLETE"  # what a shell sets to ask for completions
_HINT: Final = re.compile(r" \(?Did you mean [^?]*\?\)?")

app = typer.Typer(
    name="freshband",
    cls=Group,
    help=(
        "Fresh model updates over channels nobody can trust.\n\n"
        "M clients share N channels of unknown, changing quality. Compare the schedulers that "
        "decide, each round and from acknowledgements alone, which client uses which channel, and "
        "train models over them.\n\n"
        "[bold]Examples[/bold]\n\n"
        "  freshband simulate --policies random,bayes --runs 20 --plot regret.png\n\n"
        "  freshband train --policy bayes --matching priority --out run\n\n"
        "  freshband compare --policies random,bayes+priority --plot comparison.png\n\n"
        "  freshband serve --clients 20 --channels 30 --state state.npz\n\n"
        "  freshband list schedulers"
    ),
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in (
    simulate, train, compare, arena, export, report, bounds, show, check, serve,
):  # fmt: skip
    app.command(cls=Command)(_command)
app.command(cls=ReproduceCommand)(reproduce)
app.command("list", cls=Command)(list_things)
app.add_typer(flower.app, name="flower")


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
            help="Import a file first, and with it the schedulers, channel models, matchings, "
            "models, data sets, partitions, losses, optimisers, metrics, server rules, loggers and "
            "experiments it registers; may be repeated.",
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Read the options of the program itself."""
    for path in plugins or []:
        import_file(path)


@functools.cache
def _program() -> Callable[..., Any]:
    """Return the program that typer makes of all commands, which takes longer than most answers."""
    return get_command(app)


def main() -> None:
    """Run the command line: errors of the user end with exit code 2 and one line."""
    arguments = sys.argv[1:] or ["--help"]
    if signal.getsignal(signal.SIGTERM) != signal.SIG_IGN:
        signal.signal(signal.SIGTERM, interrupt)
    try:
        _check_completion()
        with insisting():
            code = _program()(arguments, prog_name="freshband", standalone_mode=False)
    except (FreshbandError, MemoryError, _UsageError) as error:
        _complain(error)
        code = 2
    except RecursionError:
        _complain(ParameterError("what was given is nested too deeply"))
        code = 2
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    if code == _INTERRUPTED:
        typer.echo("interrupted", err=True)
    sys.exit(code or 0)


def _check_completion() -> None:
    """Refuse to complete for bash without the words to complete; typer would show a traceback."""
    if os.environ.get(_COMPLETE) != "complete_bash":
        return
    if "COMP_WORDS" not in os.environ or not os.environ.get("COMP_CWORD", "").isdecimal():
        raise ParameterError(
            f"{_COMPLETE}=complete_bash is for bash, which also sets COMP_WORDS and COMP_CWORD; "
            "'freshband --show-completion' prints what to tell bash"
        )


def _complain(error: Exception) -> None:
    tell = getattr(error, "format_message", error.__str__)  # usage errors name the option there
    silent = "not enough memory" if isinstance(error, MemoryError) else type(error).__name__
    text = " ".join(tell().split()) or silent
    hints = _HINT.findall(text)
    if len(hints) > 1:  # typer and click each add one
        text = _HINT.sub("", text) + hints[0]
    typer.secho("error: ", fg="red", bold=True, err=True, nl=False)
    typer.echo(text, err=True)
