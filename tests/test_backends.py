"""Runs computed by Ray are the runs computed here, and survive the death of a process."""

from __future__ import annotations

import os
import signal
import textwrap
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import freshband
from freshband._backends import RayBackend, ThreadBackend, open_backend
from freshband._plugins import import_file, imported_files
from freshband.errors import ParameterError

ray = pytest.importorskip("ray", reason="needs Ray: pip install 'freshband[cluster]'")

# Ray itself leaves sockets and files open when it goes.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """One cluster for all tests of this file: to start one takes seconds."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - it is spelled so
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


def same(one: Any, other: Any) -> bool:
    return all(
        np.array_equal(one[name].values, other[name].values, equal_nan=True)
        for name in one.data_vars
        if name not in ("seconds",)
    )


def test_simulations_are_the_same_bit_for_bit(cluster: None) -> None:
    request: dict[str, Any] = {"clients": 2, "rounds": 500, "runs": 5, "seed": 3, "progress": False}
    here = freshband.simulate("piecewise", ["random", "glr-cucb"], **request)
    there = freshband.simulate("piecewise", ["random", "glr-cucb"], backend="ray", **request)
    assert same(here, there)


def test_trainings_are_the_same_bit_for_bit(cluster: None) -> None:
    from freshband.federated.comparison import compare
    from freshband.federated.settings import Training

    settings = Training(model="mlp", clients=3, rounds=6, local_steps=2)
    here = compare(settings, ["random", "glr-cucb+priority"], runs=3, progress=False)
    there = compare(
        settings, ["random", "glr-cucb+priority"], runs=3, backend="ray", progress=False
    )
    assert same(here, there)


def die_once(folder: Path, item: int) -> int:
    mark = folder / str(item)
    if item % 2 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return item * item


def test_what_a_killed_process_had_is_done_again(cluster: None, tmp_path: Path) -> None:
    found = dict(RayBackend().compute(partial(die_once, tmp_path), range(6)))
    assert found == {i: i * i for i in range(6)}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "3", "5"]


def complain(shared: str, item: int) -> int:
    if item == 1:
        raise ParameterError(f"{shared} {item}")
    return item


def test_errors_of_a_run_come_back_as_they_were(cluster: None) -> None:
    with pytest.raises(ParameterError, match=r"^bad 1$"):
        list(RayBackend().compute(partial(complain, "bad"), range(3)))


def test_the_users_own_schedulers_are_known_there(cluster: None, tmp_path: Path) -> None:
    file = tmp_path / "own_air.py"
    file.write_text(
        textwrap.dedent(
            """
            import numpy as np
            from freshband.channels import MeansStream, register
            from freshband.parameters import Parameters

            @register("own-air")
            class OwnAir(Parameters):
                n_channels: int = 3
                has_means: bool = True

                def start(self, rounds, structure, states):
                    means = np.full((rounds, self.n_channels), 0.4)
                    return MeansStream(rounds, self.n_channels, [means], states)
            """
        )
    )
    import_file(file)
    assert file.resolve() in imported_files()
    request: dict[str, Any] = {"clients": 2, "rounds": 50, "runs": 2, "progress": False}
    here = freshband.simulate("own-air", "random", **request)
    assert same(here, freshband.simulate("own-air", "random", backend="ray", **request))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ParameterError, match="backend must be 'threads' or 'ray', got 'spark'"):
        open_backend("spark")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(ParameterError, match="address is the address of a Ray cluster"):
        open_backend("threads", address="auto")
    with pytest.raises(ParameterError, match="gpus must be a number >= 0"):
        open_backend("ray", gpus=-1)
    with pytest.raises(ParameterError, match="threads must be a whole number >= 1"):
        open_backend("threads", workers=0)


def test_threads_stop_when_nobody_asks_for_more() -> None:
    import threading

    stop = threading.Event()
    steps = ThreadBackend(2).compute(partial(pow, 2), range(50), stop)
    next(steps)
    steps.close()
    assert stop.is_set()
