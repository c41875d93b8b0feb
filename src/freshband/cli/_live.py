"""What a terminal shows while a model trains, and the lines a log gets instead."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from freshband.federated.records import RoundRecord
    from freshband.federated.settings import Training

_LEVELS = "▁▂▃▄▅▆▇█"
_QUIET_FOR = 30.0  # seconds between two lines of a log
_SHOWN = 40  # rounds of the small accuracy curve, and channels of the row of means


def blocks(values: Any, low: float = 0.0, high: float = 1.0) -> str:
    """Return numbers as a row of small bars.

    Examples
    --------
    >>> blocks([0.0, 0.5, 1.0]), blocks([float("nan"), 3.0], high=4.0)
    ('▁▅█', '·▇')
    """
    span = (high - low) or 1.0
    text = ""
    for value in values:
        if value != value:
            text += "·"
        else:
            text += _LEVELS[min(7, max(0, int((value - low) / span * 8)))]
    return text


class Watch:
    """Shows the rounds as they are played: live on a terminal, elsewhere a line every half minute.

    Everything goes to stderr. It is a context manager; call `update` with every record.
    """

    def __init__(self, settings: Training, done: int, device: str, *, quiet: bool) -> None:
        from rich.console import Console

        self._settings = settings
        self._first = done
        self._device = device
        self._console = Console(stderr=True)
        self._alive = not quiet and self._console.is_terminal
        self._logs = not quiet and not self._console.is_terminal
        self._began = self._told = time.monotonic()
        self._accuracy: list[float] = []
        self._record: RoundRecord | None = None
        self._alarm = self._note = ""
        self._live: Any = None

    def __enter__(self) -> Watch:
        if self._alive:
            from rich.live import Live

            self._live = Live(
                console=self._console,
                refresh_per_second=8,
                transient=True,
                get_renderable=self._panel,
            )
            self._live.start()
        return self

    def __exit__(self, *problem: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """Print a line of its own, or show it below the live display."""
        self._note = text
        if self._live is None:
            typer.echo(text, err=True)

    def update(self, record: RoundRecord) -> None:
        self._record = record
        if record.accuracy == record.accuracy:
            self._accuracy.append(record.accuracy)
        if record.alarm >= 0:
            self._alarm = f"channel {record.alarm} changed in round {record.round}"
        if self._logs and time.monotonic() - self._told >= _QUIET_FOR:
            self._told = time.monotonic()
            typer.echo(self._line(record), err=True)

    def _speed(self, record: RoundRecord) -> tuple[float, str]:
        """Return the number of rounds per second and how long the rest takes."""
        seconds = max(time.monotonic() - self._began, 1e-9)
        speed = (record.round - self._first) / seconds
        left = (self._settings.rounds - record.round) / speed if speed > 0 else 0.0
        minutes, rest = divmod(round(left), 60)
        hours, minutes = divmod(minutes, 60)
        return speed, f"{hours}:{minutes:02d}:{rest:02d}"

    def _line(self, record: RoundRecord) -> str:
        speed, left = self._speed(record)
        accuracy = f"accuracy {self._accuracy[-1]:.3f}, " if self._accuracy else ""
        return (
            f"round {record.round} of {self._settings.rounds}: {accuracy}mean age "
            f"{record.counted_ages.mean():.2f}, delivered {record.delivered.sum()} of "
            f"{len(record.delivered)}, {speed:.2f} rounds/s, {left} left"
        )

    def _panel(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        lines: list[Any] = [Text(_title(self._settings, self._device), style="dim")]
        if self._record is None:
            lines.append(Text(f"round {self._first + 1} of {self._settings.rounds} begins"))
        else:
            lines += [self._progress(self._record), self._facts(self._record)]
        if self._note:
            lines.append(Text(self._note, style="bold yellow"))
        return Group(*lines)

    def _progress(self, record: RoundRecord) -> Any:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        speed, left = self._speed(record)
        rounds = self._settings.rounds
        bar = ProgressBar(total=rounds, completed=record.round, width=30)
        row = Table.grid(padding=(0, 1))
        row.add_row(
            f"round [bold]{record.round}[/bold]/{rounds}", bar, f"{speed:.1f} rounds/s, {left} left"
        )
        return row

    def _facts(self, record: RoundRecord) -> Any:
        from rich.table import Table

        facts = Table.grid(padding=(0, 2))
        facts.add_column(style="dim", no_wrap=True)
        facts.add_column(no_wrap=True)
        latest = self._accuracy[-_SHOWN:]
        if latest:
            loss = "" if record.loss != record.loss else f"  loss {record.loss:.3f}"
            curve = blocks(latest, min(latest), max(latest))
            facts.add_row("accuracy", f"[bold]{latest[-1]:.3f}[/bold]{loss}  [cyan]{curve}[/cyan]")
        refused, ages = int(record.refused.sum()), record.counted_ages
        facts.add_row(
            "mean age",
            f"[bold]{ages.mean():.2f}[/bold]  oldest {ages.max()}  delivered "
            f"[bold]{record.delivered.sum()}[/bold] of {len(record.delivered)}"
            + (f"  [red]refused {refused}[/red]" if refused else ""),
        )
        means = record.channel_means
        more = f" and {len(means) - _SHOWN} more" if len(means) > _SHOWN else ""
        facts.add_row("channels", f"[green]{blocks(means[:_SHOWN])}[/green]{more}  {self._alarm}")
        return facts


def _title(settings: Training, device: str) -> str:
    algorithm = "" if settings.algorithm == "renorm" else f", {settings.algorithm}"
    return (
        f"{settings.dataset} at {settings.clients} clients over {settings.channels}, "
        f"{settings.build_policy().name}{algorithm}, seed {settings.seed}, on {device}"
    )
