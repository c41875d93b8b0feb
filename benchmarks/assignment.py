"""The assignment problem of a round in which links differ, against SciPy's solver."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from benchmarks.measure import interleave
from freshband._jit import entry_point
from freshband.matching._assignment import assign

__all__ = ["table"]

_SIZES = ((6, 10), (10, 6), (20, 30), (30, 20), (200, 8))
_PROBLEMS = 1000


@entry_point
def _solve_all(urgency: Any, scores: Any, clients: Any, channels: Any, plan: Any) -> None:
    for each in range(len(urgency)):
        assign(urgency[each], scores[each], clients, channels, len(plan), plan)


def table(repeats: int) -> dict[str, Any]:
    """Return microseconds per problem; ours are solved in compiled code, SciPy's from Python."""
    rows = {}
    for n_clients, n_channels in _SIZES:
        rng = np.random.default_rng(n_clients)
        ages = rng.geometric(0.6, (_PROBLEMS, n_clients))
        urgency = ages * (ages + 1.0)
        scores = rng.random((_PROBLEMS, n_clients, n_channels))
        values = urgency[:, :, None] * scores
        plan = np.full(n_clients, -1)
        members = np.arange(n_clients), np.arange(n_channels)

        def ours(
            turn: int, urgency: Any = urgency, scores: Any = scores, rest: Any = (*members, plan)
        ) -> None:
            _solve_all(urgency, scores, *rest)

        def theirs(turn: int, values: Any = values) -> None:
            for each in values:
                linear_sum_assignment(each, maximize=True)

        seconds = interleave({"freshband": ours, "SciPy": theirs}, max(3, repeats // 2))
        rows[f"{n_clients} clients, {n_channels} channels"] = {
            name: value / _PROBLEMS * 1e6 for name, value in seconds.items()
        }
    return rows
