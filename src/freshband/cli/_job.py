"""A training run as the command line plays it, and how Ctrl-C ends it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

    from freshband.federated.records import RoundRecord
    from freshband.federated.settings import Training


class TrainingJob:
    """A run of training that is kept in a folder, or one that is not saved."""

    def __init__(self, federation: Any, run: Any = None) -> None:
        self.federation = federation
        self.run = run
        self.settings: Training = federation.settings
        self.records: list[RoundRecord] = [] if run is None else run.records
        self.interrupted = False
        self._stopping = False

    @classmethod
    def begun(cls, settings: Training, out: Path | None, every: int, keep: int) -> TrainingJob:
        """Begin a run, kept in the folder ``out`` if there is one."""
        if out is None:
            from freshband.federated.engine import Federation

            return cls(Federation(settings))
        from freshband.federated.runs import start_run

        run = start_run(settings, out, checkpoint_every=every, keep=keep)
        return cls(run.federation, run)

    @classmethod
    def resumed(cls, folder: Path) -> TrainingJob:
        """Continue the run in a folder."""
        from freshband.federated.runs import resume_run

        run = resume_run(folder)
        return cls(run.federation, run)

    def __enter__(self) -> TrainingJob:
        return self

    def __exit__(self, *problem: object) -> None:
        self.federation.close()

    def __iter__(self) -> Iterator[RoundRecord]:
        if self.run is not None:
            yield from self.run
        else:
            for record in self.federation:
                self.records.append(record)
                yield record
                if self._stopping:
                    return

    def stop(self) -> None:
        """End after the current round."""
        self.interrupted = self._stopping = True
        if self.run is not None:
            self.run.stop()

    @property
    def folder(self) -> Path | None:
        """The folder the run is kept in, if any."""
        return None if self.run is None else self.run.out

    @property
    def device(self) -> str:
        """The device that it trains on."""
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
