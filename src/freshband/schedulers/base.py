"""What a scheduler is: a frozen class of hyper-parameters, a state, and a few verbs.

Each round it chooses which M of N channels to use, and learns from acknowledgements. The page "Add
your own scheduler" of the documentation walks through one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Protocol, TypeVar

import numpy as np

from freshband._jit import verb
from freshband._registry import Registry
from freshband.errors import ParameterError

_DEFAULT: Final = "default"

_StateType = TypeVar("_StateType", bound=type)
Presets = Mapping[str, Mapping[str, Any]]
Matchings = Mapping[str, str]


class Scheduler(Protocol):
    """Hyper-parameters of a policy; everything mutable lives in the state it allocates.

    Registration adds default attributes to a class that lacks them; only `start` is required.

    Attributes
    ----------
    presets : mapping of str to dict
        Named settings, such as ``{"paper": {"gamma": "paper"}}``; ``default``, which sets nothing,
        is added to them.
    matchings : mapping of str to str
        The matching of each preset whose matching is not ``age``.
    client_scores : bool, default False
        Whether `score` writes a row per client, shape (M, N), because links differ.
    grows : bool, default True
        Whether the number of channels to choose may become larger after the start.
    detects : bool, default False
        Whether `update` returns changed channels although the state contains no detector.
    sees_channels : bool, default False
        Whether it is shown the channels by `reveal`, and so can run in simulation only.
    """

    presets: ClassVar[Presets]
    matchings: ClassVar[Matchings]
    client_scores: ClassVar[bool]
    grows: ClassVar[bool]
    detects: ClassVar[bool]
    sees_channels: ClassVar[bool]

    def start(
        self, n_clients: int, n_channels: int, rng: np.random.Generator, horizon: int | None
    ) -> Any:
        """Allocate the state. ``horizon`` is the number of rounds T, or None if unknown."""
        ...

    def start_links(
        self, n_clients: int, n_channels: int, rng: np.random.Generator, horizon: int | None
    ) -> Any:
        """Allocate a state that scores every link, because links may differ per client.

        None instead of this method, the default, says that the scheduler learns one success rate
        per channel.
        """
        ...

    def refuses(self, aware: str) -> str | None:
        """Return why these parameters exclude an AoI-aware rule, or None if they do not."""
        ...


def _read_preset(name: str) -> str:
    """Return the name of a preset as it is spelled now."""
    return _DEFAULT if name == "corrected" else name


def _complete_presets(kind: Any) -> None:
    """Add the preset ``default``, unless a class declares it, also under its old name."""
    declared = {_read_preset(name): values for name, values in kind.presets.items()}
    kind.presets = {_DEFAULT: {}, **declared}
    kind.matchings = {_read_preset(name): rule for name, rule in kind.matchings.items()}


registry: Registry[Any] = Registry(
    "scheduler",
    "freshband.schedulers",
    needs={
        "model_fields": "derive it from freshband.parameters.Parameters",
        "start": "a method that allocates the state",
    },
    defaults={
        "presets": {},
        "matchings": {},
        "client_scores": False,
        "grows": True,
        "detects": False,
        "sees_channels": False,
        "start_links": None,
        "refuses": lambda scheduler, aware: None,
    },
    complete=_complete_presets,
)
register = registry.register


def _needed_horizon(horizon: int | None, what: str) -> int:
    """Return the horizon, or raise an error that names the setting that needs it."""
    if horizon is None:
        raise ParameterError(
            f"{what} needs the number of rounds in advance: pass horizon=T, "
            f"or use the preset {_DEFAULT!r}, which does not"
        )
    return horizon


@verb
def select(scheduler: Any, t: int, ages: Any, rng: Any, chosen: Any) -> None:
    """Fill ``chosen`` with distinct channels for round ``t`` >= 1, in any order.

    ``ages`` are the ages at the end of the previous round, equation (8), of the clients that may
    send, and ``chosen`` has the same length. Where links are scored per client, ``ages`` has the
    shape (M,) and ``chosen`` the shape (N,): all channels are offered to the matching.
    """


@verb
def select_available(
    scheduler: Any, t: int, ages: Any, rng: Any, available: Any, scores: Any, chosen: Any
) -> bool:
    """Do what `select` does where some channels are missing: ``available``, shape (N,), is 1 or 0.

    ``chosen`` is at most as long as the number of available channels, and may be shorter than
    `select` expects. Return False, the default, to let the caller use `select` and replace what is
    not available by the channels with the best scores.
    """
    return False


@verb
def score(scheduler: Any, t: int, scores: Any) -> None:
    """Write the key by which chosen channels are ranked, shape (1, N) or, per client, (M, N)."""


@verb
def means(scheduler: Any, out: Any) -> None:
    """Write the historical means, equation (31), shape (N,); 0.5 without observations."""


@verb
def override(
    scheduler: Any, t: int, ages: Any, scores: Any, assignment: Any, overridden: Any
) -> None:
    """Change the assignment after matching; set ``overridden`` to 1 for the clients it changed."""


@verb
def update(scheduler: Any, t: int, assignment: Any, outcome: Any, overridden: Any) -> int:
    """Learn from a round; return the channel whose change was detected, or -1.

    Arrays have the shape (M,): ``assignment`` holds channels, -1 for none; ``outcome`` 1 delivered,
    0 lost, -1 unknown or nothing sent; ``overridden`` 1 where `override` acted.
    """
    return -1


@verb
def update_late(scheduler: Any, t: int, when: int, client: int, channel: int, outcome: int) -> int:
    """Learn one outcome, 1 or 0, of the earlier round ``when``, while round ``t`` is the latest.

    Return the channel whose change was detected, or -1. By default nothing is learnt.
    """
    return -1


@verb
def link_mean(scheduler: Any, client: int, channel: int) -> float:
    """Return the expected success rate of a link, where links are scored per client."""
    return 0.5


@verb
def forget_client(scheduler: Any, client: int) -> None:
    """Forget what is known of a client's links: a client that joins gets its number.

    By default nothing is: most schedulers know channels, not clients. Python calls it, between two
    rounds.
    """


@verb
def reveal(scheduler: Any, true_means: Any, states: Any) -> None:
    """Show the true means and states of the coming round, shapes (N,): only oracles use them."""


def ranks_by_means(state_type: _StateType) -> _StateType:
    """Rank the chosen channels by historical means, the same for all clients (class decorator)."""

    @score.register(state_type)
    def _score(scheduler: Any, t: int, scores: Any) -> None:
        means(scheduler, scores[0])

    return state_type
