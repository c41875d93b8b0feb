"""``freshband report``: one page that shows what result files hold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from freshband.cli._settings import tell_notes


def report(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="DIR|FILE",
            help="Folder with what 'simulate', 'train', 'compare', 'arena', 'reproduce', 'show' "
            "and --plot write, or one of these files.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html", show_default="DIR/report.html", help="The page to write."
        ),
    ] = None,
) -> None:
    """Write one HTML page with interactive charts of results.

    The page needs no network and no other file: open it, send it, keep it
    beside the results.

    [bold]Examples[/bold]

      freshband train --out run && freshband report run

      freshband report results --out results.html
    """
    from freshband.reporting._numbers import counted
    from freshband.reporting.report import write_report

    written = write_report(source, out)
    tell_notes(f"left out: {note}" for note in written.left_out)
    counts = {"result": len(written.shown), "picture": len(written.pictures)}
    told = [counted(count, what) for what, count in counts.items() if count]
    size = written.path.stat().st_size / 1e6
    typer.echo(f"wrote {written.path}: {', '.join(told)}, {size:.1f} MB")
