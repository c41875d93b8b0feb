"""Ray against threads on this machine: ``python -m benchmarks.cluster``.

Times the same runs on both backends in turn, with Ray already running, and measures the cost of a
task and of its data. The numbers of the documentation's page on clusters come from here.
"""

from __future__ import annotations

import importlib
import os
import pickle
import time
from collections.abc import Callable
from typing import Any, Literal

import freshband
from benchmarks.measure import interleave
from freshband._policy import parse_policy
from freshband.channels.base import build
from freshband.simulation.monte_carlo import _Plan, _play_run

POLICIES = ("random", "glr-cucb", "m-exp3")


def _simulation(
    backend: Literal["threads", "ray"], runs: int, rounds: int
) -> Callable[[int], object]:
    return lambda turn: freshband.simulate(
        "fig2",
        list(POLICIES),
        clients=2,
        rounds=rounds,
        runs=runs,
        seed=3,
        backend=backend,
        progress=False,
    )


def main() -> None:
    """Measure and print."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # as the backend does
    ray: Any = importlib.import_module("ray")
    ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    for points in (1, 200):
        policies = [parse_policy(name) for name in POLICIES]
        plan = _Plan(build("fig2"), policies, 2, 20_000, 4, 3, points)
        sent, back = len(pickle.dumps(plan)), len(pickle.dumps(_play_run(plan, 0)))
        print(f"{points} points: {sent:,} bytes sent once, {back:,} returned per run")
    empty = ray.remote(lambda number: number)
    ray.get([empty.remote(i) for i in range(100)])
    began = time.perf_counter()
    ray.get([empty.remote(i) for i in range(1000)])
    print(f"an empty task: {time.perf_counter() - began:.2f} ms")
    print("| runs | rounds | threads, s | Ray, s | throughput of Ray relative to threads |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    for runs, rounds in ((60, 20_000), (400, 20_000), (40, 200_000)):
        took = interleave(
            {
                "threads": _simulation("threads", runs, rounds),
                "ray": _simulation("ray", runs, rounds),
            },
            5,
        )
        ratio = took["threads"] / took["ray"]
        print(f"| {runs} | {rounds:,} | {took['threads']:.2f} | {took['ray']:.2f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
