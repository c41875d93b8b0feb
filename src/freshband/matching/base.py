"""What a matching is: a pure rule from ranked channels, ages and priorities to an assignment."""

from __future__ import annotations

from typing import Any, Protocol

from freshband._jit import verb
from freshband.registry import Registry

__all__ = ["Matching", "match", "register", "registry"]


class Matching(Protocol):
    """A rule without parameters; its state is room to sort in."""

    def start(self, n_clients: int, lot: int = 0) -> Any:
        """Allocate the state; ``lot``, drawn once a run, makes ties fall differently in each."""
        ...


registry: Registry[type[Matching]] = Registry(
    "matching",
    "freshband.matching",
    needs={
        "model_fields": "derive it from freshband.parameters.Parameters",
        "start": "a method that allocates the state",
    },
)
register = registry.register


@verb
def match(
    matching: Any,
    t: int,
    chosen: Any,
    scores: Any,
    ages: Any,
    priorities: Any,
    rng: Any,
    assignment: Any,
) -> None:
    """Give every client one of the chosen channels.

    Parameters
    ----------
    matching : state
    t : int
        The round, counted from 1.
    chosen : int64 array, shape (M,)
        The channels to hand out; may be reordered.
    scores : float64 array, shape (1, N) or (M, N)
        The key channels are ranked by, higher is better.
    ages : int64 array, shape (M,)
        Ages at the end of the round before.
    priorities : float64 array, shape (M,)
        What training says of each client, higher is more important; zeros without training.
    rng : numpy Generator
    assignment : int64 array, shape (M,)
        Filled with a channel per client.
    """
