"""Options that several commands have in common, and the panels of their help."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from freshband.cli._settings import read_number

# Headings under which the help of training commands lists its options.
LEARNED: Final = "What is learned"
AIR: Final = "How updates travel"
RUN: Final = "The run"
KEPT: Final = "What is kept"

Format = StrEnum("Format", ["table", "json", "csv", "latex"])


class Where(StrEnum):
    """Where runs are computed."""

    threads = "threads"
    ray = "ray"


def option(panel: str | None, text: str, *names: str, **more: Any) -> Any:
    """Return an option with its panel on the help page and its text there."""
    return typer.Option(*names, help=text, rich_help_panel=panel, **more)


def count(text: str, panel: str | None = None, **more: Any) -> Any:
    """Return an option that takes a number; the library checks whether it is in range."""
    return option(panel, text, parser=read_number, metavar="<int>", **more)


Output = Annotated[
    Format, option(None, "How to print: for people, or for other programs.", "--format")
]
Quiet = Annotated[bool, option(None, "Show no progress bar.", "--quiet")]
Backend = Annotated[
    Where,
    option(
        None,
        "Where runs are computed: threads of this process, or Ray tasks; results are the same.",
    ),
]
Address = Annotated[
    str | None,
    option(
        None,
        "Ray cluster to use, such as auto or ray://HOST:10001.",
        show_default="one started here",
    ),
]

# Of commands that train; their help has panels.
Dataset = Annotated[
    str,
    option(
        LEARNED,
        "What is learned: digits (no download), cifar10, cifar100, synthetic, sayings (text).",
    ),
]
Partition = Annotated[
    str,
    option(LEARNED, "Who holds what: dirichlet (unlike clients), iid, shards, column (by user)."),
]
Model = Annotated[
    str | None,
    option(
        LEARNED,
        "What is trained: small-cnn, cnn8, resnet18, mlp, char-gru.",
        show_default="what suits the data set",
    ),
]
DataDir = Annotated[
    Path | None,
    option(LEARNED, "Folder with CIFAR's binary files, in place of a download.", metavar="DIR"),
]
Channels = Annotated[
    str, option(AIR, "Channel model or named instance; see 'freshband list channels'.")
]
Clients = Annotated[int, count("Number of clients M.", RUN)]
Rounds = Annotated[int, count("Number of rounds T.", RUN)]
Seed = Annotated[int, count("The seed that everything derives from.", RUN)]
Device = Annotated[str, option(RUN, "Where to train: auto (a GPU if there is one), cpu, cuda.")]
Config = Annotated[
    Path | None,
    option(
        RUN,
        "Settings from a file, with the same names and tables, for compare also policies and "
        "runs; the command line wins.",
        metavar="FILE.toml",
    ),
]
Like = Annotated[
    Path | None,
    option(
        RUN,
        "Repeat what is saved in this result; files and the command line win.",
        metavar="FILE.nc",
    ),
]
