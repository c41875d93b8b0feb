"""Best first, ties by the round's lot: what every ranking in the package means."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from freshband.ranking import CLIENTS, _tie_break


def best_first(keys: Any, t: int, items: Iterable[int]) -> list[int]:
    """Sort items by decreasing key; equal keys by `_tie_break`."""
    return sorted((int(item) for item in items), key=lambda i: (-keys[i], _tie_break(t, i)))


def oldest_first(ages: Any, t: int, clients: Iterable[int]) -> list[int]:
    """Sort clients by decreasing age; their lots are not those of the channels."""
    return best_first(ages, t + CLIENTS, clients)
