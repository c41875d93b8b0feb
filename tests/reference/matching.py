"""Matchings, as their definitions read."""

from __future__ import annotations

from itertools import combinations, permutations
from typing import Any

from tests.reference.ordering import best_first, oldest_first


def rotate(t: int, chosen: Any, scores: Any) -> list[int]:
    """Client j = 1..M takes the (((j + t) mod M) + 1)-th largest."""
    ranked = best_first(scores, t, chosen)
    n_clients = len(ranked)
    ranks = [((j + t) % n_clients) + 1 for j in range(1, n_clients + 1)]
    return [ranked[rank - 1] for rank in ranks]


def fixed(t: int, chosen: Any, scores: Any) -> list[int]:
    """Client j takes the j-th largest."""
    return best_first(scores, t, chosen)


def age(t: int, chosen: Any, scores: Any, ages: Any, lot: int = 0) -> list[int]:
    """The oldest client takes the largest, the next oldest the next."""
    assignment = [-1] * len(ages)
    clients = oldest_first(ages, t + lot, range(len(ages)))
    for client, channel in zip(clients, best_first(scores, t, chosen), strict=True):
        assignment[client] = channel
    return assignment


def most_weight(ages: Any, scores: Any, chosen: Any) -> float:
    """Maximum of sum a_i score_k(i) over all assignments, by trying them."""
    return max(
        sum(ages[j] * scores[channel] for j, channel in enumerate(assignment))
        for assignment in permutations(chosen)
    )


def most_weight_over_links(
    urgency: Any, scores: Any, clients: Any, channels: Any, most: int
) -> float:
    """Maximum of sum urgency_i score_ik over all sets of as many pairs as possible, by trying."""
    n_pairs = min(len(clients), len(channels), most)
    return max(
        sum(urgency[j] * scores[j][k] for j, k in zip(who, where, strict=True))
        for who in combinations(clients, n_pairs)
        for where in permutations(channels, n_pairs)
    )
