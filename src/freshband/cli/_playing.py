"""A training run as the command line plays it, and how Ctrl-C or SIGTERM ends it."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
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
_AGAIN = 0.01  # seconds, in which a destructor ends


def interrupt(number: int, frame: FrameType | None) -> None:
    """Interrupt the program, as Ctrl-C does: what it holds is given back or saved on the way."""
    raise KeyboardInterrupt


@contextmanager
def insisting() -> Iterator[None]:
    """Interrupt again where Python drops an interruption: in destructors and weakref callbacks."""
    told = sys.unraisablehook

    def insist(dropped: sys.UnraisableHookArgs) -> None:
        if dropped.exc_type is not KeyboardInterrupt:
            told(dropped)
            return
        ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # as in the background
        number = signal.SIGTERM if ignored else signal.SIGINT
        again: Callable[[], None] = partial(_thread.interrupt_main, number)
        if os.name == "posix":  # there this also ends what the main thread waits for
            main = threading.main_thread().ident or 0
            again = partial(signal.pthread_kill, main, number)
        threading.Timer(_AGAIN, again).start()

    sys.unraisablehook = insist
    try:
        yield
    finally:
        sys.unraisablehook = told


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
