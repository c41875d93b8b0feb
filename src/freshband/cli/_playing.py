"""A training run as the command line plays it, and how Ctrl-C ends it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

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


@contextmanager
def interruptible(stop: Callable[[], None]) -> Iterator[None]:
    """Make the first Ctrl-C call ``stop``; the second one interrupts as usual."""

    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stop()

    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread alone
        return
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
