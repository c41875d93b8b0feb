"""Tables on a terminal: how wide they may be, and which columns a narrow one leaves out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def open_console() -> Console:
    """Return a console for stdout; a pipe has no width, so tables are not folded to 80 columns."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=200)


def make_table(
    title: str,
    head: Iterable[str],
    rows: Iterable[Sequence[str]],
    *,
    caption: str | None = None,
    right: Collection[str] = (),
) -> Table:
    """Return a table whose long cells fold; ``right`` are the headings of columns of numbers."""
    from rich.table import Table

    table = Table(title=title, caption=caption)
    for heading in head:
        table.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def print_policies(
    title: str, caption: str, columns: Mapping[str, Sequence[str]], spare: Iterable[str]
) -> None:
    """Print a row for each policy, on a narrow terminal without the first of ``spare`` columns.

    ``columns`` are cells by heading, with the policies first.
    """
    from rich.measure import Measurement

    console = open_console()
    unlimited = console.options.update(max_width=1000)
    shown = dict(columns)
    numbers = list(shown)[1:]
    left = [heading for heading in spare if heading in shown]
    dropped: list[str] = []
    while True:
        note = f"; no room for {', '.join(dropped)}" if dropped else ""
        rows = list(zip(*shown.values(), strict=True))
        table = make_table(title, shown, rows, caption=caption + note, right=numbers)
        table.columns[0].no_wrap = True
        if not left or Measurement.get(console, unlimited, table).maximum <= console.width:
            break
        dropped.append(left.pop(0))
        del shown[dropped[-1]]
    console.print(table)


def print_written(paths: Iterable[Path | None]) -> None:
    """Name the files that were written."""
    console = open_console()
    for path in paths:
        if path is not None:
            console.print(f"wrote {path}", highlight=False, soft_wrap=True)
