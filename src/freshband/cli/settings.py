"""How ``--set`` is read: ``key=value`` for the channels, ``POLICY.key=value`` for a policy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from freshband.errors import ParameterError

__all__ = ["read_number", "read_settings"]


def read_number(text: str | float) -> Any:
    """Return a number if the text is one; whether it is allowed is for the library to say.

    Examples
    --------
    >>> read_number("20_000"), read_number("1e6"), read_number("many")
    (20000, 1000000.0, 'many')
    """
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def read_settings(settings: Sequence[str]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the channels' settings and each policy's.

    Values are JSON where they can be (numbers, true, null, lists), else text.

    Examples
    --------
    >>> read_settings(["n_channels=5", "m-exp3:paper.gamma=0.1", "means=[0.2, 0.8]"])
    ({'n_channels': 5, 'means': [0.2, 0.8]}, {'m-exp3:paper': {'gamma': 0.1}})
    """
    channels: dict[str, Any] = {}
    policies: dict[str, dict[str, Any]] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        policy, _, key = name.strip().rpartition(".")
        if not equals or not key:
            raise ParameterError(f"--set must be key=value or POLICY.key=value, got {setting!r}")
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            value = text
        target = policies.setdefault(policy, {}) if policy else channels
        if key in target:
            raise ParameterError(f"--set gives {name.strip()!r} twice")
        target[key] = value
    return channels, policies
