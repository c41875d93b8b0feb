"""The cost of a round of the embedded coordinator."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.measure import interleave
from freshband import Coordinator
from freshband._policy import parse_policy
from freshband.schedulers.base import registry

__all__ = ["table"]

_ROUNDS = 2000


def table(repeats: int) -> dict[str, Any]:
    """Time plan() and observe() together."""
    delivered = np.random.default_rng(0).random((_ROUNDS, 20)) < 0.7

    def session(policy: str, n_clients: int, n_channels: int) -> Any:
        coordinator = Coordinator(policy, n_clients, n_channels)

        def rounds(turn: int) -> None:
            for row in delivered:
                coordinator.plan()
                coordinator.observe(row[:n_clients])

        return rounds

    actions = {
        f"{name} N={n} M={m}": session(name, m, n)
        for name in registry.names()
        if not parse_policy(name).scheduler.sees_channels
        for n, m in ((5, 2), (30, 20))
    }
    seconds = interleave(actions, max(3, repeats // 4))
    return {name: {"us_per_round": value / _ROUNDS * 1e6} for name, value in seconds.items()}
