"""What a scheduler is: a frozen class of hyper-parameters, a state, and a few verbs.

A scheduler chooses, each round, which M of N channels to use, and learns from acknowledgements.
Adding one is adding a file here: a ``State(NamedTuple)`` of arrays, versions of the verbs below for
it, and a class registered under a name. Command line, contract tests, benchmark row and
documentation page follow from the registration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import numpy as np

from freshband._jit import verb
from freshband.errors import ParameterError
from freshband.registry import Registry

__all__ = [
    "Matchings",
    "Presets",
    "RegisteredScheduler",
    "Scheduler",
    "means",
    "needed_horizon",
    "override",
    "register",
    "registry",
    "reveal",
    "score",
    "select",
    "update",
]


Presets = Mapping[str, Mapping[str, Any]]
Matchings = Mapping[str, str]


class Scheduler(Protocol):
    """Hyper-parameters of a policy; everything mutable lives in the state it allocates.

    Attributes
    ----------
    presets : mapping of str to dict
        Named settings, such as ``{"paper": {"gamma": "paper"}}``. The defaults are the preset
        ``corrected``, present everywhere.
    matchings : mapping of str to str
        The default matching of each preset that does not use ``age``.
    """

    presets: ClassVar[Presets]
    matchings: ClassVar[Matchings]

    def start(
        self, n_clients: int, n_channels: int, rng: np.random.Generator, horizon: int | None
    ) -> Any:
        """Allocate the state. ``horizon`` is the number of rounds T, or None if unknown."""
        ...


class RegisteredScheduler(Scheduler, Protocol):
    """A scheduler with what registering adds where a class leaves it out."""

    def refuses(self, aware: str) -> str | None:
        """Return why these parameters do not go with an AoI-aware rule; by default they do."""
        ...


registry: Registry[type[Scheduler]] = Registry(
    "scheduler",
    "freshband.schedulers",
    needs={
        "model_fields": "derive it from freshband.parameters.Parameters",
        "presets": "named settings, at least presets: ClassVar[Presets] = {'corrected': {}}",
        "matchings": "default matchings by preset, matchings: ClassVar[Matchings] = {} for 'age'",
        "start": "a method that allocates the state",
    },
    defaults={"refuses": lambda scheduler, aware: None},
)
register = registry.register


def needed_horizon(horizon: int | None, what: str) -> int:
    """Return the horizon, or say which setting cannot do without it."""
    if horizon is None:
        raise ParameterError(
            f"{what} needs the number of rounds in advance: pass horizon=T, "
            "or use the horizon-free preset 'corrected'"
        )
    return horizon


@verb
def select(scheduler: Any, t: int, ages: Any, rng: Any, chosen: Any) -> None:
    """Choose this round's channels.

    Parameters
    ----------
    scheduler : state
    t : int
        The round, counted from 1.
    ages : int64 array, shape (M,)
        Ages at the end of the round before, equation (8).
    rng : numpy Generator
    chosen : int64 array, shape (M,)
        Filled with M distinct channels, in any order.
    """


@verb
def score(scheduler: Any, t: int, scores: Any) -> None:
    """Write the key by which chosen channels are ranked; shape (1, N), or (M, N) by client."""


@verb
def means(scheduler: Any, out: Any) -> None:
    """Write the historical means, equation (31), shape (N,); 0.5 for a channel never heard."""


@verb
def override(
    scheduler: Any, t: int, ages: Any, scores: Any, assignment: Any, overridden: Any
) -> None:
    """Change the assignment after matching; set ``overridden`` to 1 for clients that jumped in."""


@verb
def update(scheduler: Any, t: int, assignment: Any, outcome: Any, overridden: Any) -> int:
    """Learn from a round; return the channel whose change was detected, or -1.

    Parameters
    ----------
    scheduler : state
    t : int
        The round, counted from 1.
    assignment : int64 array, shape (M,)
        The channel of each client, -1 for idle.
    outcome : int8 array, shape (M,)
        1 delivered, 0 lost, -1 unknown.
    overridden : int8 array, shape (M,)
        1 where `override` acted.
    """
    return -1


@verb
def reveal(scheduler: Any, true_means: Any, states: Any) -> None:
    """Show the truth of the coming round, shapes (N,): only oracles look."""
