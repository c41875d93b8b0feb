"""Where independent runs are computed: threads of this process, or Ray tasks on many machines.

Results are the same bit for bit, because a run depends only on its number and the seed.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event
from typing import Any, Literal, Protocol, TypeVar, final

from freshband._plugins import import_file, imported_files
from freshband.errors import FreshbandError, ParameterError
from freshband.parameters import whole_number

_Item = TypeVar("_Item")
_Found = TypeVar("_Found")

_RETRIES = 5  # for a task whose process was killed
_LOOK = 0.1  # seconds between two looks for signals


class Backend(Protocol):
    """A way to call a function many times."""

    def compute(
        self, call: Callable[[_Item], _Found], items: Sequence[_Item], stop: Event | None = None
    ) -> Iterator[tuple[int, _Found]]:
        """Yield (position of the item, ``call(item)``) as calls finish, in any order.

        If an error occurs or the caller stops early, ``stop`` is set and calls that have not begun
        are cancelled.
        """
        ...


def open_backend(
    name: Literal["threads", "ray"] = "threads",
    *,
    workers: int | None = None,
    address: str | None = None,
    gpus: float = 0.0,
) -> Backend:
    """Return a backend by name.

    ``workers`` is the number of parallel calls on this machine, by default one per core; a running
    Ray cluster has its own number. ``address`` is that of a Ray cluster, such as ``"auto"`` or
    ``"ray://host:10001"``; by default one is started here and ended afterwards. ``gpus`` is the
    share of a GPU that a call takes on Ray, such as 0.25.
    """
    if name == "ray":
        return RayBackend(workers=workers, address=address, gpus=gpus)
    if name != "threads":
        raise ParameterError(f"backend must be 'threads' or 'ray', got {name!r}")
    if address is not None:
        raise ParameterError("address is the address of a Ray cluster: use it with backend='ray'")
    if gpus:
        raise ParameterError("gpus is the share of a GPU per run on Ray: use it with backend='ray'")
    return ThreadBackend(workers=workers)


@final
class ThreadBackend:
    """Threads of this process; compiled code runs on all cores."""

    def __init__(self, workers: int | None = None) -> None:
        chosen = (os.cpu_count() or 1) if workers is None else workers
        self.workers = whole_number("threads", chosen, at_least=1)

    def compute(
        self, call: Callable[[_Item], _Found], items: Sequence[_Item], stop: Event | None = None
    ) -> Iterator[tuple[int, _Found]]:
        """Make the calls on a pool of threads; see `Backend.compute`."""
        with ThreadPoolExecutor(min(self.workers, max(1, len(items)))) as pool:
            try:
                finished: SimpleQueue[Future[_Found]] = SimpleQueue()
                waiting: dict[Future[_Found], int] = {
                    pool.submit(call, item): i for i, item in enumerate(items)
                }
                for future in waiting:
                    future.add_done_callback(finished.put)
                for _ in waiting:
                    future = _next(finished)
                    yield waiting[future], future.result()
            except BaseException:
                if stop is not None:
                    stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def _next(queue: SimpleQueue[_Item]) -> _Item:
    """Wait for an item; signals are seen even where one comes just before the thread waits.

    Python handles a signal in the main thread between two instructions. One that comes after the
    last of them, or to another thread, does not end a wait without a time limit.
    """
    while True:
        try:
            return queue.get(timeout=_LOOK)
        except Empty:
            continue


@final
class RayBackend:
    """Ray tasks; a task whose process dies is repeated, up to five times.

    A task takes one core and ``gpus`` of a GPU, and makes a few calls. It imports the files given
    by ``--import`` from the same path.
    """

    def __init__(
        self, workers: int | None = None, address: str | None = None, gpus: float = 0.0
    ) -> None:
        if importlib.util.find_spec("ray") is None:
            raise FreshbandError(
                "Ray is missing; install it with: pip install 'freshband[cluster]'"
            )
        if not gpus >= 0:
            raise ParameterError(f"gpus must be a number >= 0, got {gpus!r}")
        self.workers = None if workers is None else whole_number("threads", workers, at_least=1)
        self.address = address
        self.gpus = gpus

    def compute(
        self, call: Callable[[_Item], _Found], items: Sequence[_Item], stop: Event | None = None
    ) -> Iterator[tuple[int, _Found]]:
        """Make the calls in Ray tasks; see `Backend.compute`."""
        ray: Any = importlib.import_module("ray")
        mine = not ray.is_initialized()
        if mine:
            self._connect(ray)
        try:
            task = ray.remote(_run).options(
                num_cpus=1, num_gpus=self.gpus, max_retries=_RETRIES, retry_exceptions=False
            )
            packed = ray.put(ray.cloudpickle.dumps(call))
            files = [str(path) for path in imported_files()]
            size = _share(len(items), ray.cluster_resources().get("CPU", 1.0))
            waiting = {
                task.remote(packed, files, list(items[at : at + size])): at
                for at in range(0, len(items), size)
            }
            while waiting:
                (done, *_), _ = ray.wait(list(waiting), num_returns=1)
                yield from enumerate(_fetch(ray, done), start=waiting.pop(done))
        finally:
            if mine:
                ray.shutdown()

    def _connect(self, ray: Any) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        os.environ.setdefault("RAY_worker_niceness", "0")  # by default they have low priority
        own = {"num_cpus": self.workers, "include_dashboard": False}
        try:
            ray.init(
                address=self.address or "local",
                logging_level="ERROR",
                log_to_driver=False,
                **({} if self.address else own),
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            why = str(error).partition("\n")[0]
            where = self.address or "on this machine"
            raise FreshbandError(f"cannot reach a Ray cluster {where}: {why}") from None


def _share(items: int, cores: float) -> int:
    """Return the number of items per task: about eight tasks per core, at most 32 items each.

    Examples
    --------
    >>> _share(6, cores=2), _share(400, cores=2), _share(100_000, cores=1000)
    (1, 25, 12)
    """
    return max(1, min(32, int(items // (8 * max(cores, 1.0)))))


def _run(packed: bytes, files: list[str], items: list[Any]) -> list[Any]:
    """Make calls in another process, which may not have imported the user's files yet."""
    ray: Any = importlib.import_module("ray")
    for path in files:
        import_file(Path(path))
    call = ray.cloudpickle.loads(packed)
    return [call(item) for item in items]


def _fetch(ray: Any, done: Any) -> Any:
    try:
        return ray.get(done)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, FreshbandError):
            raise error.cause from None
        raise
    except ray.exceptions.WorkerCrashedError:
        raise FreshbandError(
            f"a run failed: its process died {_RETRIES + 1} times, perhaps for lack of memory"
        ) from None
