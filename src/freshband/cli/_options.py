"""Options that several commands have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from freshband.cli import _panels
from freshband.cli._settings import Format, read_number


def count(text: str, panel: str | None = None, **more: Any) -> Any:
    """Return an option that takes a number; the library checks whether it is in range."""
    return typer.Option(
        parser=read_number, metavar="<int>", help=text, rich_help_panel=panel, **more
    )


Output = Annotated[Format, typer.Option("--format", help="How to print.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress bar.")]

# Of commands that train; their help has panels.
Dataset = Annotated[
    str,
    typer.Option(
        help="What is learned: digits (no download), cifar10, cifar100, synthetic.",
        rich_help_panel=_panels.LEARNED,
    ),
]
Partition = Annotated[
    str,
    typer.Option(
        help="Who holds what: dirichlet (unlike clients), iid, shards.",
        rich_help_panel=_panels.LEARNED,
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        show_default="what suits the data set",
        help="What is trained: small-cnn, cnn8, resnet18, mlp.",
        rich_help_panel=_panels.LEARNED,
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder with CIFAR's binary files, in place of a download.",
        rich_help_panel=_panels.LEARNED,
    ),
]
Channels = Annotated[
    str,
    typer.Option(
        help="Channel model or named instance; see 'freshband list channels'.",
        rich_help_panel=_panels.AIR,
    ),
]
Clients = Annotated[int, count("Number of clients M.", _panels.RUN)]
Rounds = Annotated[int, count("Number of rounds T.", _panels.RUN)]
Seed = Annotated[int, count("The one seed everything derives from.", _panels.RUN)]
Device = Annotated[
    str,
    typer.Option(
        help="Where to train: auto (a GPU if there is one), cpu, cuda.",
        rich_help_panel=_panels.RUN,
    ),
]
