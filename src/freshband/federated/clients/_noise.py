"""Dropout from the run's own random streams, on several threads at once.

Torch has one default generator on a CPU, which all threads share: what a client draws from it would
depend on the others. Here every operation that draws is given the generator of the client's job.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_LOCK = threading.Lock()


@contextmanager
def drawing_from(seed: int, device: torch.device) -> Iterator[None]:
    """Let everything that is drawn on this thread depend on the seed alone."""
    if device.type == "cpu":
        with _OwnGenerator(seed):
            yield
    else:  # one worker trains there
        with torch.random.fork_rng(devices=[device]):
            torch.manual_seed(seed)
            yield


class _OwnGenerator(TorchDispatchMode):
    """Gives operations that draw random numbers a generator of their own."""

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch does not annotate it
        self.generator = torch.Generator().manual_seed(seed)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would import its compiler, which takes seconds, to keep out of here

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        named = dict(kwargs or {})
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **named)
        places = [argument.name for argument in func._schema.arguments]
        if "generator" in places and places.index("generator") >= len(args):
            if named.get("generator") is None:
                named["generator"] = self.generator
            return func(*args, **named)
        with _LOCK, torch.random.fork_rng(devices=[]):  # it draws from the default generator
            drawn = torch.randint(2**62, (), generator=self.generator)
            torch.default_generator.manual_seed(int(drawn))
            return func(*args, **named)
