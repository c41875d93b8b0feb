"""Workers: Python threads with one torch thread and one tool each."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

import torch

__all__ = ["Crew"]

Tool = TypeVar("Tool")
Work = TypeVar("Work")
Found = TypeVar("Found")


class Crew(Generic[Tool]):
    """Does pieces of work at the same time, one worker per tool.

    Torch releases Python's lock while it computes, so threads use all cores. Each has one torch
    thread, because several on one small piece slow each other down. The result of a piece must not
    depend on the tool it gets.
    """

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._idle: queue.SimpleQueue[Tool] = queue.SimpleQueue()
        for tool in tools:
            self._idle.put(tool)
        self._pool = ThreadPoolExecutor(len(tools), "client", initializer=_one_thread)

    def share(self, work: Sequence[Work], do: Callable[[Tool, Work], Found]) -> Iterator[Found]:
        """Yield ``do(tool, piece)`` for every piece, in order."""

        def with_a_tool(piece: Work) -> Found:
            tool = self._idle.get()
            try:
                return do(tool, piece)
            finally:
                self._idle.put(tool)

        return self._pool.map(with_a_tool, work)

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _one_thread() -> None:
    torch.set_num_threads(1)
