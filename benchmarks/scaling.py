"""How cost and memory grow with the horizon and with the number of channels."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np

from benchmarks.measure import interleave
from benchmarks.simulation import single_run
from freshband._policy import parse_policy
from freshband.states import _arrays, reserve

__all__ = ["table"]

_POLICY = "glr-cucb"
_HORIZONS = (10_000, 100_000, 1_000_000)
_SIZES = (10, 30, 100, 300, 1000)


def _peak_bytes(rounds: int) -> int:
    """Return the most memory a run takes, as Python and numpy count it."""
    run = single_run(_POLICY, rounds)
    run(0)
    tracemalloc.start()
    run(0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def _state_bytes(rounds: int) -> int:
    """Return the size of the scheduler's state with room for a horizon."""
    state, _ = parse_policy(_POLICY).start(2, 5, np.random.default_rng(0), rounds)
    return sum(array.nbytes for _, array in _arrays(reserve(state, rounds)))


def table(repeats: int) -> dict[str, Any]:
    """Time one policy over horizons and sizes."""
    horizons = {str(rounds): single_run(_POLICY, rounds) for rounds in _HORIZONS}
    by_horizon = interleave(horizons, max(3, repeats // 4))
    sizes = {str(n): single_run(_POLICY, 2000, n_channels=n, clients=n // 2) for n in _SIZES}
    by_size = interleave(sizes, max(3, repeats // 4))
    first = by_horizon[str(_HORIZONS[0])] / _HORIZONS[0]
    return {
        "policy": _POLICY,
        "horizon": {
            str(rounds): {
                "ns_per_round": by_horizon[str(rounds)] / rounds * 1e9,
                "times_shortest": by_horizon[str(rounds)] / rounds / first,
                "peak_bytes": _peak_bytes(rounds),
                "state_bytes": _state_bytes(rounds),
            }
            for rounds in _HORIZONS
        },
        "channels": {
            str(n): {
                "clients": n // 2,
                "us_per_round": by_size[str(n)] / 2000 * 1e6,
                "ns_per_round_and_channel": by_size[str(n)] / 2000 / n * 1e9,
            }
            for n in _SIZES
        },
    }
