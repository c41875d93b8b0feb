"""``freshband export``: the trained model of a run as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from freshband import federated
from freshband.cli import _training
from freshband.cli._tables import print_written


def export(
    run: Annotated[
        Path, typer.Argument(help="Folder of a run of 'freshband train'.", metavar="RUN")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="File to write.", show_default="RUN/model.safetensors", metavar="FILE"),
    ] = None,
    client: Annotated[
        int | None,
        typer.Option(
            help="Whose model, where parts of it stay with the clients.",
            show_default="the mean of these parts",
        ),
    ] = None,
) -> None:
    """Write the model of a run as named tensors, as of its newest checkpoint.

    A run writes model.safetensors by itself when it is finished; this is for runs of earlier
    versions, runs that go on, and models of single clients. In Python,
    safetensors.torch.load_model(module, "model.safetensors") loads it.

    [bold]Examples[/bold]

      freshband export run

      freshband export run --out digits.safetensors
    """
    _training.need_extra()
    print_written([federated.export_model(run, out, client=client)])
