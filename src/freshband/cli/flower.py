"""``freshband flower``: the round with real clients, as a Flower app."""

from __future__ import annotations

import math
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from freshband.cli._folding import Command, Group
from freshband.cli._options import count
from freshband.cli._settings import read_setting
from freshband.cli._training import need_extra
from freshband.errors import ParameterError, nearest, shown

app = typer.Typer(
    cls=Group,
    help="Real clients: make a Flower app, and run it as processes that talk over TLS.",
    invoke_without_command=True,
    rich_markup_mode="rich",
)


_Warm = Annotated[
    bool,
    typer.Option(
        "--warm/--cold",
        help="Fork ClientApps from a process that has imported what they need, or start each anew, "
        "as Flower does by itself.",
    ),
]


@app.callback()
def _show_help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(cls=Command)
def new(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write, empty or new.")],
    clients: Annotated[int, count("Number of clients M.")] = 4,
    rounds: Annotated[int, count("Number of rounds T.")] = 10,
) -> None:
    """Write a ready Flower app that learns handwritten digits.

    [bold]Examples[/bold]

      freshband flower new digits

      freshband flower up digits
    """
    need_extra()
    from freshband.flower._scaffold import write_app
    from freshband.parameters import whole_number

    written = write_app(
        folder.expanduser(),
        clients=whole_number("clients", clients, at_least=1),
        rounds=whole_number("rounds", rounds, at_least=3),
    )
    for path in written:
        typer.echo(f"wrote {path}")
    where = shlex.quote(str(folder))
    typer.echo(f"run it with: freshband flower up {where}")


@app.command(cls=Command)
def up(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of the Flower app.")
    ] = Path(),
    clients: Annotated[
        int | None,
        count(
            "Number of clients M, one SuperNode each.",
            show_default="the setting clients of the app",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change the app's configuration, repeatable: rounds=3, uplink=deadline.",
        ),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Keep keys, certificates and logs in this folder: new, empty, or of an earlier "
            "run.",
        ),
    ] = None,
    warm: _Warm = True,
) -> None:
    """Run a Flower app as real processes on this machine.

    Starts a SuperLink and M SuperNodes on the loopback interface, with TLS and
    a registered key per SuperNode; shows the log; and ends every process when
    the run is over or you press Ctrl-C.

    [bold]Examples[/bold]

      freshband flower up digits

      freshband flower up digits --set rounds=3 --set uplink=deadline
    """
    need_extra()
    from freshband.flower._deployment import Deployment
    from freshband.flower._scaffold import read_app

    given = dict(_read(text) for text in settings or [])
    known = read_app(folder.expanduser())
    project = folder / "pyproject.toml"
    for key in sorted(given.keys() - known.keys()):
        raise ParameterError(
            f"unknown setting {key!r} of the app, {nearest(key, known)} (others can be added to "
            f"{project})"
        )
    wanted = (known | given).get("clients") if clients is None else clients
    if wanted is None:
        raise ParameterError(
            "the number of clients must be given: add --clients, or clients = 4 under "
            f"[tool.flwr.app.config] in {project}"
        )
    if given.get("clients", wanted) != wanted:
        raise ParameterError(
            f"--clients {wanted} and --set clients={given['clients']} must be the same number"
        )
    federation = Deployment(folder, wanted, keep, warm=warm)
    typer.echo(f"starting a SuperLink and {wanted} SuperNodes ...", err=True)
    with _ending_softly(), federation:
        told = {"clients": wanted} if "clients" in known else {}  # it may be anybody's app
        code = federation.run(told | given, tell=typer.echo)
    if code:
        raise typer.Exit(code)


@app.command(cls=Command)
def node(
    superlink: Annotated[
        str, typer.Argument(metavar="HOST:PORT", help="Address of the SuperLink.")
    ],
    client: Annotated[int, count("The client's number, its partition-id.")],
    clients: Annotated[int, count("Number of clients M.")],
    authority: Annotated[
        Path, typer.Option(metavar="FILE", help="Certificate of the SuperLink's authority.")
    ],
    key: Annotated[
        Path, typer.Option(metavar="FILE", help="Private key, whose public half is registered.")
    ],
    warm: _Warm = True,
) -> None:
    """Run the SuperNode of one client on its own machine.

    It does what flower-supernode does with these settings, but asks the
    SuperLink for messages more often, forks ClientApps, and talks to them
    over TLS.

    [bold]Examples[/bold]

      freshband flower node fl.example.org:8000 --client 3 --clients 20
      --authority ca.crt --key client-3
    """
    need_extra()
    from freshband.flower._processes import LoneNode
    from freshband.parameters import whole_number

    number = whole_number("clients", clients, at_least=1)
    place = whole_number("client", client, at_least=0)
    if place >= number:
        raise ParameterError(f"--client must be below --clients {number}, got {place}")
    with _ending_softly(), LoneNode(superlink, authority, key, place, number, warm=warm) as lone:
        raise typer.Exit(lone.wait())


def _read(text: str) -> tuple[str, object]:
    before, key, value = read_setting(text, "KEY=VALUE")
    name = f"{before}.{key}" if before else key
    if not isinstance(value, str) and not (isinstance(value, int | float) and math.isfinite(value)):
        raise ParameterError(
            f"--set {name} must be text, a finite number, true or false, got {shown(value)}"
        )
    return name, value


@contextmanager
def _ending_softly() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, and ignore both while processes are being ended.

    A second Ctrl-C would leave some of them behind.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:  # as under nohup and in background jobs of a shell
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
