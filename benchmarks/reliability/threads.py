"""A coordinator called from many threads: ``... threads [--calls N] [--threads N]``.

Eight threads plan, observe, observe late and save at random. The order in which their calls got
hold of the coordinator is noted, and a twin is called in this order by one thread: every result,
every error and every saved file must be the same. Saved files are loaded too.
"""

from __future__ import annotations

import argparse
import sys
import threading
from typing import Any

import numpy as np


class NotedLock:
    """A lock that notes which thread enters it first."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.order, self._depth = inner, list[int](), 0
        self.names: dict[int, int] = {}

    def __enter__(self) -> None:
        self.inner.acquire()
        if self._depth == 0:
            self.order.append(self.names[threading.get_ident()])
        self._depth += 1

    def __exit__(self, *problem: object) -> None:
        self._depth -= 1
        self.inner.release()


def calls_of(thread: int, count: int, n_clients: int) -> list[tuple[str, Any]]:
    """Return the calls of a thread, drawn from its own random numbers."""
    rng = np.random.default_rng(thread)
    kinds = rng.choice(["plan", "observe", "late", "save"], count, p=[0.45, 0.4, 0.148, 0.002])
    news = rng.integers(-1, 2, (count, n_clients))
    lags = rng.integers(1, 20, count)
    return [
        (kind, (heard, int(lag)))
        for kind, heard, lag in zip(kinds.tolist(), news, lags, strict=True)
    ]


def make(coordinator: Any, call: tuple[str, Any], approximate_round: int) -> Any:
    """Make a call; return what it returned, or the name of its error."""
    from freshband.errors import FreshbandError

    kind, (heard, lag) = call
    try:
        if kind == "plan":
            return coordinator.plan().tolist()
        if kind == "observe":
            return coordinator.observe(heard)
        if kind == "late":
            return coordinator.observe(heard, round=max(1, approximate_round - lag))
        return coordinator.to_bytes()
    except FreshbandError as error:
        return f"{type(error).__name__}: {error}"


def main() -> int:
    """Call from many threads, then in the noted order; return 1 if anything differs."""
    from freshband import Coordinator

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, default=8)
    chosen = parser.parse_args()
    shared, twin = (Coordinator("glr-cucb", 3, 5, seed=1) for _ in range(2))
    noted = shared._lock = NotedLock(shared._lock)  # type: ignore[assignment]  # acts as one
    each = chosen.calls // chosen.threads
    work = [calls_of(thread, each, 3) for thread in range(chosen.threads)]
    rounds = np.zeros((chosen.threads, each), np.int64)
    found: list[list[Any]] = [[] for _ in work]

    def run(thread: int) -> None:
        noted.names[threading.get_ident()] = thread
        for at, call in enumerate(work[thread]):
            rounds[thread, at] = shared._round
            found[thread].append(make(shared, call, int(rounds[thread, at])))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=run, args=(thread,)) for thread in range(chosen.threads)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    sys.setswitchinterval(before)
    done = [0] * len(work)
    differ = saves = 0
    for thread in noted.order:
        at = done[thread]
        done[thread] += 1
        same = make(twin, work[thread][at], int(rounds[thread, at]))
        differ += same != found[thread][at]
        if isinstance(same, bytes):
            saves += 1
            differ += Coordinator.from_bytes(found[thread][at]).to_bytes() != same
    shared._lock = noted.inner
    whole = done == [each] * len(work) and shared.to_bytes() == twin.to_bytes()
    switches = int((np.diff(noted.order) != 0).sum())
    print(f"{len(noted.order)} calls from {len(work)} threads, {switches} times another thread")
    print(f"{saves} saves, {shared.round} rounds; {differ} results differ from the serial order")
    return int(differ > 0 or not whole)


if __name__ == "__main__":
    sys.exit(main())
