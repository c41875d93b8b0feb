"""Policies by name: ``[label=]scheduler[:preset][{key=value,...}][+token...]``.

Tokens are matchings (``age``, ``rotate`` …), ``aa`` and ``aa-sum``; matchings may have presets too.
The braces hold settings of the scheduler or of the matching, and the label names the results.
Examples: ``glr-cucb:paper``, ``m-exp3+rotate``, ``glr-cucb+aa``, ``glr-cucb:paper+priority:paper``,
``fast=cucb{mean_window=200}+aa``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from freshband._registry import _RESERVED, Registry
from freshband._values import read_value, split_outside
from freshband.detectors.base import push
from freshband.errors import FreshbandError, ParameterError, UnknownNameError, nearest, shown
from freshband.matching import base as matchings
from freshband.parameters import Parameters
from freshband.ranking import CLIENTS
from freshband.schedulers import _aoi_aware
from freshband.schedulers import base as schedulers
from freshband.schedulers.base import means
from freshband.states import _check_state, _nested

_AWARE = {"aa": "per_client", "aa-sum": "sum"}
_LABEL: Final = re.compile(r"\s*([^=+:,.{}@\s]+)\s*=")


@dataclass(frozen=True)
class Policy:
    """A scheduler, an optional AoI-aware rule and a matching."""

    name: str  # what results call it: its label, or as written, such as "glr-cucb:paper+aa"
    scheduler: schedulers.Scheduler
    matching: matchings.Matching
    matching_name: str
    aware: str | None = None  # "per_client", "sum" or None
    options: dict[str, Any] = field(default_factory=dict)  # settings that the text lacks
    text: str = ""  # as written, with label and braces: makes the same policy again

    def __post_init__(self) -> None:
        if not self.text:
            object.__setattr__(self, "text", self.name)

    @property
    def needs_contributions(self) -> bool:
        """Whether the matching needs contributions from training."""
        return self.matching.needs_contributions

    @property
    def grows(self) -> bool:
        """Whether more channels than at the start can be chosen later."""
        return self.scheduler.grows

    @property
    def has_detector(self) -> bool:
        """Whether the scheduler notices changes, by a detector or by itself."""
        if self.scheduler.detects:
            return True
        state = self.scheduler.start(1, 2, np.random.default_rng(0), 1000)
        return any(push.knows(type(part)) for part in _nested(state))

    @property
    def learns_links(self) -> bool:
        """Whether the scheduler can learn a success rate per link."""
        return self.scheduler.client_scores or self.scheduler.start_links is not None

    def scores_links(self, links: bool) -> bool:
        """Whether the state scores every link, given whether links may differ."""
        return self.scheduler.client_scores or (links and self.learns_links)

    def check_late(self, delay: int, links: bool) -> None:
        """Raise `ParameterError` if outcomes that are ``delay`` rounds late teach nothing."""
        if delay == 0:
            return
        begin = (self.scheduler.start_links if links else None) or self.scheduler.start
        kind = type(begin(1, 2, np.random.default_rng(0), 1000))
        if schedulers.update.knows(kind) and not schedulers.update_late.knows(kind):
            raise ParameterError(
                f"policy {self.name!r} learns nothing from outcomes that arrive late, but "
                f"ack_delay is {delay}: leave this policy out"
            )

    def start(
        self,
        n_clients: int,
        n_channels: int,
        rng: np.random.Generator,
        horizon: int | None,
        *,
        most: int | None = None,
        links: bool = False,
        check: bool = True,
    ) -> tuple[Any, Any]:
        """Allocate the scheduler's state and the matching's.

        ``most`` is the number of clients that may send in a round, by default all. With ``links``
        a scheduler that can learns a success rate per link. ``check`` is False where the same
        policy was checked before, in another run.
        """
        slots = n_clients if most is None or self.scores_links(links) else most
        begin = self.scheduler.start
        if links and self.scheduler.start_links is not None:
            begin = self.scheduler.start_links
            if self.aware is not None:
                raise ParameterError(
                    f"policy {self.name!r} has an AoI-aware rule, which knows one success rate per "
                    "channel: leave out +aa where links differ"
                )
        state = begin(slots, n_channels, rng, horizon)
        if check:
            _check_state(f"policy {self.name!r}", state)
            self._check_verbs(state)
        if self.aware is not None:
            if not means.knows(type(state)):
                raise ParameterError(
                    f"policy {self.name!r} needs its scheduler's means for +aa, but "
                    f"{type(state).__name__} registers no version of 'means': leave out +aa"
                )
            state = _aoi_aware.wrap(state, self.aware, slots, n_channels)
        pairing = self.matching.start(n_clients, lot=int(rng.random() * CLIENTS))
        if check:
            _check_state(f"matching {self.matching_name!r}", pairing)
        return state, pairing

    def _check_verbs(self, state: Any) -> None:
        """Refuse a state that cannot choose, or that is shown the channels without saying so."""
        if not schedulers.select.knows(type(state)):
            raise ParameterError(
                f"the scheduler of policy {self.name!r} cannot choose: {type(state).__name__} "
                "registers no version of 'select'"
            )
        kinds = {type(part) for part in _nested(state)} - {_aoi_aware.AoIAwareState}  # passes it on
        for kind in kinds if not self.scheduler.sees_channels else ():
            if schedulers.reveal.knows(kind):
                raise ParameterError(
                    f"the scheduler of policy {self.name!r} is shown the channels, because "
                    f"{kind.__name__} registers a version of 'reveal': its class must say "
                    "'sees_channels: ClassVar[bool] = True', which makes it an oracle"
                )


def label_of(text: str) -> str:
    """Return what results call a policy: its label, or all of its text.

    Examples
    --------
    >>> (
    ...     label_of("fast=cucb{mean_window=200}"),
    ...     label_of("cucb{mean_window=200}"),
    ...     label_of(" bayes+aa "),
    ... )
    ('fast', 'cucb{mean_window=200}', 'bayes+aa')
    """
    found = _LABEL.match(text)
    return found[1] if found else text.strip()


def _unlabelled(text: str) -> str:
    found = _LABEL.match(text)
    return text[found.end() :] if found else text


def split_policies(text: str) -> list[str]:
    """Return the policies of a text, which commas outside of braces separate."""
    return [each.strip() for each in split_outside(text)]


def spelled(policy: str | Policy) -> str:
    """Return a policy as written."""
    return policy.text if isinstance(policy, Policy) else policy.strip()


def parse_policy(
    text: str | Policy | Parameters,
    options: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
) -> Policy:
    """Build a policy from its text and hyper-parameters, or around a scheduler with its settings.

    Parameters
    ----------
    text : str or scheduler
        Such as ``"glr-cucb:paper+aa"`` or ``"fast=cucb{mean_window=200}"``, or an object of a
        registered class, such as ``Cucb(mean_window=200)``.
    options : mapping, optional
        Settings of a policy that is given as text.
    name : str, optional
        What results call the policy.

    Examples
    --------
    >>> policy = parse_policy("glr-cucb:paper+aa", {"delta": 0.01})
    >>> policy.matching_name, policy.aware, policy.scheduler.delta
    ('rotate', 'per_client', 0.01)
    >>> parse_policy("fast=cucb{mean_window=200}+aa").name
    'fast'
    >>> from freshband.schedulers.cucb import Cucb
    >>> parse_policy(Cucb(mean_window=200), name="fast").text
    'fast=cucb{mean_window=200}'
    """
    if isinstance(text, Parameters):
        text = _spell(text)
    if name is not None:
        if not isinstance(name, str) or not name or set(name) & _RESERVED:
            raise ParameterError(
                f"name must be text without spaces and any of ':+,.={{}}@', got {shown(name)}"
            )
        if isinstance(text, Policy):
            text = replace(text, name=name, text=f"{name}={_unlabelled(text.text)}")
        else:
            text = f"{name}={_unlabelled(str(text))}"
    given = read_options("options", options)
    if isinstance(text, Policy):
        if given:
            raise ParameterError(
                f"options need a policy given by name, got {sorted(given)} with a ready "
                f"{text.name!r}"
            )
        return text
    if not isinstance(text, str) or not text.strip():
        raise ParameterError(f"policy must be text like 'glr-cucb:paper+aa', got {shown(text)}")
    plain, own = _open_braces(text)
    twice = sorted(own.keys() & given.keys())
    if twice:
        raise ParameterError(f"{twice[0]} is given twice, in the braces of {text!r} and besides")
    kept, given = given, {**own, **given}
    head, *tokens = plain.split("+")
    kind, preset = _with_preset(schedulers.registry, head)
    matching, aware = _read_tokens(text, tokens)
    rule, printed = _with_preset(matchings.registry, matching or kind.matchings.get(preset, "age"))
    to_rule = {key: value for key, value in given.items() if key in rule.model_fields}
    to_scheduler = {key: value for key, value in given.items() if key not in to_rule}
    scheduler = kind(**{**kind.presets[preset], **to_scheduler})
    pairing = rule(**{**rule.presets[printed], **to_rule})
    if aware is not None and (why := scheduler.refuses(aware)) is not None:
        raise ParameterError(why)
    dumped = scheduler.model_dump(mode="json", include=to_scheduler.keys() & kept.keys())
    dumped |= pairing.model_dump(mode="json", include=to_rule.keys() & kept.keys())
    named = matchings.registry.name_of(rule) or rule.__name__
    return Policy(label_of(text), scheduler, pairing, named, aware, dumped, text.strip())


def _open_braces(text: str) -> tuple[str, dict[str, Any]]:
    """Return a policy's text without label and braces, and the settings inside the braces."""
    before, brace, inside = _unlabelled(text).partition("{")
    inside, closed, after = inside.partition("}")
    if bool(brace) != bool(closed) or set("{}=") & set(before + after):
        raise ParameterError(
            "policy must be text like 'glr-cucb+aa' or 'fast=cucb{window=200}', got "
            f"{shown(text)}"
        )
    settings: dict[str, Any] = {}
    for each in split_outside(inside) if inside.strip() else ():
        key, equals, value = each.partition("=")
        if not equals or not key.strip() or key.strip() in settings:
            raise ParameterError(
                f"the braces of policy {text!r} must hold key=value, each key once, got {each!r}"
            )
        settings[key.strip()] = read_value(value)
    return (before + after).strip(), settings


def _spell(scheduler: Parameters) -> str:
    """Return the text that makes the same scheduler."""
    name = schedulers.registry.name_of(type(scheduler))
    if name is None:
        raise ParameterError(
            f"{type(scheduler).__name__} is not a registered scheduler: register its class"
        )
    chosen = scheduler.model_dump(mode="json", exclude_unset=True)
    inside = ",".join(f"{key}={json.dumps(value)}" for key, value in chosen.items())
    return f"{name}{{{inside}}}" if inside else name


def has_detector(text: str, options: Mapping[str, Any] | None, alarms: int) -> bool:
    """Return whether a policy that raised this number of alarms looks for changes.

    A user's own policy may be unknown here and may detect changes in its own way: then the number
    of alarms decides. The part after an ``@`` is not about the policy and is ignored.
    """
    if alarms > 0:
        return True
    try:
        return parse_policy(text.partition("@")[0], options).has_detector
    except FreshbandError:
        return False


def read_options(name: str, options: object) -> dict[str, Any]:
    """Return a copy of options by name, or raise `ParameterError`."""
    if options is None:
        return {}
    if not isinstance(options, Mapping) or not all(isinstance(key, str) for key in options):
        raise ParameterError(f"{name} must map names to values, got {shown(options)}")
    return dict(options)


def _with_preset(registry: Registry[Any], text: str) -> tuple[Any, str]:
    """Return what is registered under ``name[:preset]``, and the name of its preset."""
    name, colon, preset = text.partition(":")
    kind = registry[name]
    preset = schedulers._read_preset(preset) if colon else schedulers._DEFAULT
    if preset not in kind.presets:
        raise UnknownNameError(f"{name} has no preset {preset!r}; {nearest(preset, kind.presets)}")
    return kind, preset


def _read_tokens(text: str, tokens: list[str]) -> tuple[str | None, str | None]:
    matching: str | None = None
    aware: str | None = None
    for token in tokens:
        if token in _AWARE:
            if aware is not None:
                raise ParameterError(f"policy {text!r} names two AoI-aware rules")
            aware = _AWARE[token]
        elif token.partition(":")[0] in matchings.registry:
            if matching is not None:
                raise ParameterError(f"policy {text!r} names two matchings")
            matching = token
        else:
            hint = nearest(token, [*matchings.registry.names(), *_AWARE])
            raise UnknownNameError(f"unknown token '+{token}' in policy {text!r}; {hint}")
    return matching, aware
