"""Policies of a comparison: what stands behind ``@``, and the settings each policy trains with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from freshband.errors import ParameterError
from freshband.federated.aggregation import AGGREGATIONS
from freshband.federated.settings import Training
from freshband.policy import Policy

__all__ = ["settings_of", "unused_by_all"]

_EAGER: Final = 4  # rounds an eager client works on a model: one starved must not walk too far


def settings_of(
    settings: Training,
    policy: str | Policy,
    options: Mapping[str, Any] | None = None,
    run: int = 0,
) -> Training:
    """Return the settings with which one policy of a comparison trains in one run.

    Examples
    --------
    >>> chosen = settings_of(Training(), "glr-cucb+age@fedbuff", {"delta": 0.01}, run=3)
    >>> chosen.policy().name, chosen.algorithm, chosen.policy_options, chosen.run
    ('glr-cucb+age', 'fedbuff', {'delta': 0.01}, 3)
    """
    draft, own = _draft(settings, policy, options, run)
    others = draft.unused().keys() - own.keys()  # settings of the rules other policies have
    return Training(**draft.model_dump(exclude=others))


def _draft(
    settings: Training, policy: str | Policy, options: Mapping[str, Any] | None, run: int
) -> tuple[Training, dict[str, Any]]:
    """Return the settings with which a policy trains, used or not, and those it names itself."""
    text = policy.name if isinstance(policy, Policy) else policy
    options = policy.options if isinstance(policy, Policy) else options
    name, at, rule = text.strip().partition("@")
    own: dict[str, Any] = {
        "scheduler": name,
        "matching": None,
        "policy_options": dict(options or {}),
        "run": run,
        **(_read_rule(text, rule) if at else {}),
    }
    return Training.as_stored({**settings.model_dump(), **own}), own


def _read_rule(text: str, rule: str) -> dict[str, Any]:
    """Return the settings the rule of a policy stands for."""
    named: dict[str, str] = {}
    for part in rule.split("+"):
        setting = {"average": "served", "eager": "local_rounds"}.get(part, "algorithm")
        setting = "aggregation" if part in AGGREGATIONS else setting
        if named.get(setting) == part:
            raise ParameterError(f"policy {text!r} names {part!r} twice")
        if setting in named:
            raise ParameterError(
                f"policy {text!r} names two {setting}s, {named[setting]!r} and {part!r}"
            )
        named[setting] = part
    if "aggregation" in named and named.setdefault("algorithm", "async") != "async":
        raise ParameterError(
            f"policy {text!r} names two algorithms, {named['algorithm']!r} and 'async' with "
            f"{named['aggregation']!r}"
        )
    return named | ({"local_rounds": _EAGER} if "local_rounds" in named else {})


def unused_by_all(
    settings: Training, policies: Mapping[str, str | Policy], options: Mapping[str, Any]
) -> dict[str, str]:
    """Return what the settings of a comparison hold that none of its policies uses, and why."""
    found = []
    for name, text in policies.items():
        draft, own = _draft(settings, text, options.get(name), settings.run)
        found.append({key: why for key, why in draft.unused().items() if key not in own})
    return {
        name: f"{why}: no policy compared uses it"
        for name, why in (found[0].items() if found else ())
        if all(name in each for each in found)
    }
