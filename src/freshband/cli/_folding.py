"""Help pages that fold long words on a narrow terminal, where typer's tables cut them off."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    import click


class Command(TyperCommand):
    """A command whose help page shows every word in full."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help page."""
        _fold_tables()
        self.help = _reflow(self.help)
        super().format_help(ctx, formatter)


class Group(TyperGroup):
    """A command with commands of its own, whose help page shows every word in full."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help page."""
        _fold_tables()
        self.help = _reflow(self.help)
        super().format_help(ctx, formatter)


def _reflow(text: str | None) -> str | None:
    r"""Return help whose paragraphs are one line each; typer breaks them where the source does.

    Examples
    --------
    >>> _reflow("What it does\nand why.\n\n  freshband list")
    'What it does and why.\n\n  freshband list'
    """
    if text is None:
        return None
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(
        each if each.startswith(" ") else " ".join(each.split()) for each in paragraphs
    )


def _fold_tables() -> None:
    """Replace the tables of typer's help by tables that fold; typer has no setting for that."""
    from rich.columns import Columns
    from rich.table import Table
    from rich.text import Text
    from typer import rich_utils

    class FoldingTable(Table):
        def add_row(self, *cells: Any, **settings: Any) -> None:
            for cell in cells:
                for part in cell.renderables if isinstance(cell, Columns) else [cell]:
                    if isinstance(part, Text):
                        part.overflow = "fold"  # a text's own setting comes before its column's
            super().add_row(*cells, **settings)

    rich_utils.Table = FoldingTable  # type: ignore[attr-defined]  # typer only imports it
