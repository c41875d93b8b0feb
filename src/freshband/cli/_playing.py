"""A training run as the command line plays it, and how Ctrl-C or SIGTERM ends it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from types import FrameType

    from freshband.federated.records import RoundRecord
    from freshband.federated.settings import Training


class PlayedRun:
    """A run of training, kept in a folder by ``run`` or not saved at all."""

    def __init__(self, federation: Any, run: Any = None) -> None:
        self.federation = federation
        self.run = run
        self.settings: Training = federation.settings
        self.records: list[RoundRecord] = [] if run is None else run.records
        self.interrupted = False

    def __iter__(self) -> Iterator[RoundRecord]:
        if self.run is not None:
            yield from self.run
            return
        for record in self.federation:
            self.records.append(record)
            yield record
            if self.interrupted:
                return

    def stop(self) -> None:
        self.interrupted = True
        if self.run is not None:
            self.run.stop()

    @property
    def device(self) -> str:
        return str(self.federation.dataset.train_images.device)


_ENDING = (signal.SIGINT, signal.SIGTERM)


def interrupt(number: int, frame: FrameType | None) -> None:
    """Interrupt the program, as Ctrl-C does: what it holds is given back or saved on the way."""
    raise KeyboardInterrupt


@contextmanager
def interruptible(stop: Callable[[], None]) -> Iterator[None]:
    """Make the first Ctrl-C or SIGTERM call ``stop``; the second one interrupts as usual."""

    def handle(number: int, frame: FrameType | None) -> None:
        for each in _ENDING:
            signal.signal(each, interrupt)
        stop()

    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread alone
        return
    before = [signal.signal(each, handle) for each in _ENDING]
    try:
        yield
    finally:
        for each, former in zip(_ENDING, before, strict=True):
            signal.signal(each, former)


@contextmanager
def keeping(out: Path | None) -> Iterator[None]:
    """Say after an interruption what is kept; after success remove it: the result is written."""
    from freshband._keeping import count_runs, forget_runs

    try:
        yield
    except KeyboardInterrupt:
        how = "nothing is saved without --out"
        if out is not None:
            how = (
                f"{count_runs(out)} runs are kept in {out}.runs: the same command goes on from them"
            )
        typer.echo(f"stopped; {how}", err=True)
        raise
    if out is not None:
        forget_runs(out)
