"""The two AoI-aware rules of erratum E16, as they read."""

from __future__ import annotations

import math
from typing import Any

from tests.reference.ordering import best_first, oldest_first


def per_client(
    t: int, ages: Any, means: Any, scores: Any, assignment: Any
) -> tuple[list[int], list[int]]:
    """Clients older than 1 / max mean take the best means, oldest first; the rest make room.

    Returns the assignment and who jumped in.
    """
    best = max(means)
    limit = 1 / best if best > 0 else math.inf
    late = oldest_first(ages, t, [j for j in range(len(ages)) if ages[j] > limit])
    free = set(range(len(means)))
    final = [-1] * len(ages)
    for client in late:
        final[client] = best_first(means, t, free)[0]
        free.remove(final[client])
    on_time = [j for j in range(len(ages)) if j not in late]
    robbed = [j for j in on_time if assignment[j] not in free]
    for client in on_time:
        if client not in robbed:
            final[client] = int(assignment[client])
            free.remove(final[client])
    for client in robbed:
        final[client] = best_first(scores, t, free)[0]
        free.remove(final[client])
    return final, [int(j in late) for j in range(len(ages))]


def sum_rule(t: int, ages: Any, means: Any) -> list[int] | None:
    """The M best means if the ages add up to more than those would sustain, else None."""
    best = best_first(means, t, range(len(means)))[: len(ages)]
    sustained = sum(1 / means[k] if means[k] > 0 else math.inf for k in best)
    return best if sum(ages) > sustained else None
