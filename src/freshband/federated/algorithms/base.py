"""What a server rule is, the registry of rules, and how one is built from its name.

A rule says what the server does with the updates that arrived. It is a frozen class of options;
what it remembers between rounds is a `NamedTuple` of tensors and arrays, which it is handed in
every round and which is saved with the run. Adding a rule is adding a file here: command line,
contract tests and documentation page follow from the registration.

An algorithm is written ``rule[+wrapper...]``, such as ``"fedbuff"`` or ``"fixed+eager+average"``:
one rule, and wrappers that change any rule, the first of them innermost.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import SerializeAsAny

from freshband._registry import Registry
from freshband.errors import ParameterError, UnknownNameError, nearest, shown
from freshband.parameters import Parameters

if TYPE_CHECKING:  # settings name rules where PyTorch is not installed
    import torch

    Rows: TypeAlias = torch.Tensor | Mapping[int, torch.Tensor]

__all__ = [
    "Algorithm",
    "Arrivals",
    "Moved",
    "Rule",
    "Wrapper",
    "build_algorithm",
    "read_algorithm",
    "register",
    "registry",
]


Moved: TypeAlias = tuple[NDArray[np.float64], int]  # each update's step, versions passed


@dataclasses.dataclass(frozen=True)
class Arrivals:
    """What got through in a round; rows of P numbers may be those of the clients in `S_t` alone."""

    delivered: NDArray[np.bool_]  # (M,), `S_t`
    updates: Rows  # by client, `G_i` (6); those of clients not in `S_t` must not be read
    models: Rows  # by client, `w^E` after local training; none unless the rule needs them
    staleness: NDArray[np.int64]  # (M,), the number of model versions missed, -1 if not in `S_t`
    weights: NDArray[np.float64]  # (M,), `ζ`, summing to 1
    client_lr: float  # `η`, the clients' step
    round: int = 0  # counted from 1

    @property
    def clients(self) -> list[int]:
        """The clients in `S_t`, in ascending order."""
        return np.flatnonzero(self.delivered).tolist()


class Algorithm(ABC):
    """What the server asks of a rule; everything but `apply` has a default."""

    @property
    def everybody_trains(self) -> bool:
        """Whether every client trains in every round, not only those whose update got through."""
        return False

    @property
    def needs_models(self) -> bool:
        """Whether `apply` reads the clients' models."""
        return False

    @property
    def weighs_updates(self) -> bool:
        """Whether `apply` reads the weights `ζ`."""
        return False

    @property
    def training_rounds(self) -> int:
        """The number of rounds a client works on a model it was given, 1 as in the paper."""
        return 1

    def start(self, model: torch.Tensor) -> Any:
        """Return what the rule remembers before the first round: a tuple, empty for nothing."""
        return ()

    @abstractmethod
    def apply(self, model: torch.Tensor, memory: Any, arrivals: Arrivals) -> Moved:
        """Move the model, in place; return each update's step and the number of versions passed."""

    def serve(self, model: torch.Tensor, memory: Any) -> torch.Tensor:
        """Return the model to evaluate and to hand out; clients train on the newest either way."""
        return model


class Rule(Parameters, Algorithm):
    """A server rule with its options, frozen and validated; derive from it and write `apply`."""


class Wrapper(Rule):
    """A rule made of another one, ``rule``; what it does not change is that rule's."""

    rule: SerializeAsAny[Rule]

    @property
    def everybody_trains(self) -> bool:
        """As the rule has it."""
        return self.rule.everybody_trains

    @property
    def needs_models(self) -> bool:
        """As the rule has it."""
        return self.rule.needs_models

    @property
    def weighs_updates(self) -> bool:
        """As the rule has it."""
        return self.rule.weighs_updates

    @property
    def training_rounds(self) -> int:
        """As the rule has it."""
        return self.rule.training_rounds

    def unused(self) -> dict[str, str]:
        """Return what has no effect in the rule."""
        return self.rule.unused()

    def start(self, model: torch.Tensor) -> Any:
        """Return what the rule remembers."""
        return self.rule.start(model)

    def apply(self, model: torch.Tensor, memory: Any, arrivals: Arrivals) -> Moved:
        """Let the rule move the model."""
        return self.rule.apply(model, memory, arrivals)

    def serve(self, model: torch.Tensor, memory: Any) -> torch.Tensor:
        """Return the model of the rule."""
        return self.rule.serve(model, memory)


registry: Registry[type[Rule]] = Registry(
    "algorithm",
    "freshband.federated.algorithms",
    needs=dict.fromkeys(
        ("model_fields", "training_rounds"), "derive it from freshband.federated.algorithms.Rule"
    ),
)
register = registry.register


def read_algorithm(text: str) -> list[str]:
    """Return the names in an algorithm: the rule, ``renorm`` if none is named, then wrappers.

    Examples
    --------
    >>> read_algorithm("average"), read_algorithm("fedbuff+eager")
    (['renorm', 'average'], ['fedbuff', 'eager'])
    >>> read_algorithm("fedavg+fedbuff")
    Traceback (most recent call last):
    freshband.errors.ParameterError: 'fedavg+fedbuff' names two rules, 'fedavg' and 'fedbuff': ...
    """
    if not isinstance(text, str):
        raise ParameterError(f"algorithm must be text like 'fedbuff+average', got {shown(text)}")
    named = text.strip().split("+")
    rules = [name for name in named if not issubclass(registry[name], Wrapper)]
    wrappers = [name for name in named if name not in rules]
    for name in named:
        if named.count(name) > 1:
            raise ParameterError(f"{text!r} names {name!r} twice")
    if len(rules) > 1:
        raise ParameterError(
            f"{text!r} names two rules, {rules[0]!r} and {rules[1]!r}: an algorithm is one rule "
            f"and any number of wrappers ({', '.join(_wrappers())})"
        )
    return [*(rules or ["renorm"]), *wrappers]


def _wrappers() -> list[str]:
    return [name for name in registry if issubclass(registry[name], Wrapper)]


def _options_of(name: str) -> set[str]:
    """Return the names of a rule's own options."""
    return set(registry[name].model_fields) - {"rule"}


def build_algorithm(
    algorithm: str, options: Mapping[str, Any] | None = None, *, stored: bool = False
) -> Rule:
    """Return a rule with its wrappers around it, from its name and all their options.

    With ``stored`` the options come from a file: those that have no effect had none then.

    Examples
    --------
    >>> build_algorithm("fedbuff+average", {"buffer_size": 3, "recency": 8})
    Average(rule=FedBuff(staleness='polynomial', ..., buffer_size=3, server_lr=1.0), recency=8)
    """
    given = dict(options or {})
    for why in _misplaced_options(algorithm, given).values():
        if not stored:
            raise ParameterError(why)
    built: Rule | None = None
    for name in read_algorithm(algorithm):
        kind, own = registry[name], {key: given[key] for key in _options_of(name) & given.keys()}
        own |= {} if built is None else {"rule": built}
        built = kind.as_stored(own) if stored else kind(**own)
    assert built is not None
    return built


def _plain_options(algorithm: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as JSON can write them, whatever numbers they came as."""
    rule, found = build_algorithm(algorithm, options, stored=True), dict(options)
    while True:
        found |= rule.model_dump(mode="json", include=options.keys() - {"rule"})
        if not isinstance(rule, Wrapper):
            return found
        rule = rule.rule


def _misplaced_options(algorithm: str, options: Mapping[str, Any]) -> dict[str, str]:
    """Return the options that do not belong to an algorithm, with where each belongs."""
    names = read_algorithm(algorithm)
    known = set().union(*(_options_of(name) for name in names))
    found = {}
    for key, value in options.items():
        if key in known:
            continue
        homes = [name for name in registry if key in _options_of(name)]
        if not homes:
            everything = sorted(set().union(*(_options_of(name) for name in registry)))
            raise UnknownNameError(
                f"no algorithm has an option {key!r}; {nearest(key, everything)}"
            )
        found[key] = (
            f"{key} belongs to algorithm {_either(homes)}, not to {'+'.join(names)!r}, got "
            f"{shown(value)}"
        )
    return found


def _either(names: list[str]) -> str:
    *others, last = (repr(name) for name in names)
    return f"{', '.join(others)} or {last}" if others else last
