"""What a matching is: a pure rule from ranked channels, ages and priorities to an assignment."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from freshband._jit import verb
from freshband.registry import Registry

__all__ = ["Matching", "RegisteredMatching", "match", "priorities_of", "register", "registry"]


class Matching(Protocol):
    """A rule; its state is room to sort in."""

    def start(self, n_clients: int, lot: int = 0) -> Any:
        """Allocate the state; ``lot``, drawn once a run, makes ties fall differently in each."""
        ...


class RegisteredMatching(Matching, Protocol):
    """A matching with what registering adds where a class leaves it out.

    Attributes
    ----------
    needs_contributions : bool, default False
        Whether it ranks clients by what training says of them.
    """

    needs_contributions: ClassVar[bool]


registry: Registry[type[Matching]] = Registry(
    "matching",
    "freshband.matching",
    needs={
        "model_fields": "derive it from freshband.parameters.Parameters",
        "start": "a method that allocates the state",
    },
    defaults={"needs_contributions": False},
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


@verb
def priorities_of(matching: Any, out: Any) -> bool:
    """Write the clients' priorities in the last plan, shape (M,), if there are any: say whether."""
    return False
