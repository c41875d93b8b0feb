"""Dropout from the run's own random streams, on several threads at once.

Torch has one default generator on a CPU, which all threads share: what a client draws from it would
depend on the others. Here every operation that draws is given the generator of the client's job.

Watching every operation is slow. So a trial learns which functions of torch, as a model calls them,
draw nothing; these run as usual, and all others are watched.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from freshband.federated.clients._pointwise import Uncompiled

_LOCK = threading.Lock()


_NAMES = (
    "attention", "bernoulli", "cauchy", "dropout", "exponential", "geometric", "gumbel",
    "multinomial", "normal", "poisson", "rand", "rrelu", "uniform",
)  # fmt: skip


@contextmanager
def drawing_from(
    seed: int, device: torch.device, pure: Collection[Any] = frozenset()
) -> Iterator[None]:
    """Let everything that is drawn on this thread depend on the seed alone.

    ``pure`` are functions of torch that draw nothing, as `learn_pure` finds them.
    """
    if device.type == "cpu":
        with _Calls(seed, pure):
            yield
    else:  # one worker trains there
        with torch.random.fork_rng(devices=[device]):
            torch.manual_seed(seed)
            yield


def learn_pure(call: Callable[[], Any]) -> frozenset[Any]:
    """Return the functions of torch that a call uses and that draw nothing."""
    with torch.random.fork_rng(devices=[]), _Learning() as learnt:
        call()
    return frozenset(learnt.called - learnt.drew)


class _Learning(TorchFunctionMode):
    """Notes which functions of torch are called, and which of them draw."""

    def __init__(self) -> None:
        super().__init__()
        self.called: set[Any] = set()
        self.drew: set[Any] = set()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        before = torch.get_rng_state()
        found = func(*args, **(kwargs or {}))
        self.called.add(func)
        name = str(getattr(func, "__name__", func))
        draws = any(part in name for part in _NAMES)  # perhaps with other arguments
        if draws or not torch.equal(before, torch.get_rng_state()):
            self.drew.add(func)
        return found


class _Calls(TorchFunctionMode):
    """Watches all functions but those that draw nothing."""

    def __init__(self, seed: int, pure: Collection[Any]) -> None:
        super().__init__()
        self.pure, self.watching = pure, _OwnGenerator(seed)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in self.pure:
            return func(*args, **(kwargs or {}))
        with self.watching:
            return func(*args, **(kwargs or {}))


class _OwnGenerator(Uncompiled):
    """Gives operations that draw random numbers a generator of their own."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        named = {} if kwargs is None else kwargs
        if not _draws(func):
            return func(*args, **named)
        places = [argument.name for argument in func._schema.arguments]
        if "generator" in places and places.index("generator") >= len(args):
            if named.get("generator") is None:
                named = {**named, "generator": self.generator}
            return func(*args, **named)
        with _LOCK, torch.random.fork_rng(devices=[]):  # it draws from the default generator
            drawn = torch.randint(2**62, (), generator=self.generator)
            torch.default_generator.manual_seed(int(drawn))
            return func(*args, **named)


@functools.cache
def _draws(func: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in func.tags
