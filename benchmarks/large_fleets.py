"""Large fleets: a round of the coordinator with 1,000 channels, by the number of clients."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.measure import interleave
from freshband import Coordinator

__all__ = ["table"]

_CLIENTS = (10_000, 100_000, 1_000_000)
_CHANNELS = 1000
_FEW = 2 * _CHANNELS  # clients, whose memory is that of the channels
_POLICIES = ("glr-cucb", "bayes")
_ROUNDS = 5  # in each turn


def _session(policy: str, n_clients: int) -> Callable[[int], object]:
    """Return rounds of which all outcomes are known at once; few ages differ, so ties are many."""
    coordinator = Coordinator(policy, n_clients, _CHANNELS)
    rng = np.random.default_rng(0)
    means = rng.uniform(0.1, 0.9, _CHANNELS)

    def rounds(turn: int) -> None:
        for _ in range(_ROUNDS):
            coordinator.plan()
            clients, channels = coordinator.transmissions
            coordinator.observe(rng.random(len(clients)) < means[channels], clients=clients)

    return rounds


def _limit(n_clients: int) -> Callable[[int], object]:
    """Return the least that a round does: read all ages, and write all entries of the plan."""
    ages = np.ones(n_clients)

    def rounds(turn: int) -> None:
        for _ in range(_ROUNDS):
            ages.max()
            np.full(n_clients, -1, np.int64)

    return rounds


def _peak_bytes(policy: str, n_clients: int) -> int:
    tracemalloc.start()
    _session(policy, n_clients)(0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def table(repeats: int) -> dict[str, Any]:
    """Time plan() and observe() together, and count bytes per client."""
    actions = {f"limit {m}": _limit(m) for m in _CLIENTS}
    actions |= {f"{name} {m}": _session(name, m) for name in _POLICIES for m in _CLIENTS}
    seconds = interleave(actions, max(3, repeats // 2))
    rows = {}
    for name in _POLICIES:
        few = _peak_bytes(name, _FEW)
        for m in _CLIENTS:
            took = seconds[f"{name} {m}"]
            rows[f"{name}, {m:,} clients"] = {
                "us_per_round": took / _ROUNDS * 1e6,
                "ns_per_client": took / _ROUNDS / m * 1e9,
                "times_limit": took / seconds[f"limit {m}"],
                "bytes_per_client": (_peak_bytes(name, m) - few) / (m - _FEW),
            }
    return {"channels": _CHANNELS, "rows": rows}
