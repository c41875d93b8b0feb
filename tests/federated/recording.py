"""Records made by hand, so that results can be tested without training."""

from __future__ import annotations

from typing import Any

import numpy as np

from freshband.federated.records import RoundRecord

DELIVERED = [[1, 0, 1], [0, 0, 1], [1, 1, 1], [0, 0, 0]]
AGES = [[1, 2, 1], [2, 3, 1], [1, 1, 1], [2, 2, 2]]
ACCURACY = [0.4, 0.7, np.nan, 0.6]


def make_record(t: int, **changes: Any) -> RoundRecord:
    """Round t of four, with three clients and five channels; nobody looked in round 3."""
    at = t - 1
    delivered, ages = np.array(DELIVERED[at], bool), np.array(AGES[at])
    looked = not np.isnan(ACCURACY[at])
    fields: dict[str, Any] = {
        "round": t,
        "accuracy": ACCURACY[at],
        "loss": 1.0 / t if looked else np.nan,
        "client_accuracy": np.array([0.1, 0.2, 0.3]) * t if looked else np.full(3, np.nan),
        "accuracy_spread": 0.1 * t if looked else np.nan,
        "ages": ages,
        "variance": float(ages.var()),
        "assignment": np.array([4, 0, 2]),
        "delivered": delivered,
        "refused": np.array([False, t == 4, False]),
        "alarm": 3 if t == 2 else -1,
        "staleness": np.where(delivered, at, -1),
        "weights": np.full(3, 1 / 3),
        "steps": np.where(delivered, 0.5, 0.0),
        "contributions": np.full(3, np.nan),
        "errors": np.full(3, np.nan),
        "priorities": np.full(3, np.nan),
        "channel_means": np.linspace(0.1, 0.9, 5) / t,
        "trained": 3 if t == 1 else sum(DELIVERED[at - 1]),
        "bytes_up": 300,
        "bytes_down": 100 * t,
        "seconds": 0.25,
    }
    return RoundRecord(**{**fields, **changes})


def make_records(rounds: int = 4) -> list[RoundRecord]:
    """The first rounds."""
    return [make_record(t) for t in range(1, rounds + 1)]
