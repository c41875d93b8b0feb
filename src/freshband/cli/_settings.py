"""How options are read: numbers, ``--set key=value``, and which options were given."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from freshband._parsing import parse_toml
from freshband._values import read_value
from freshband.errors import FileError, ParameterError, UnknownNameError, nearest, reason


def given_options(context: typer.Context) -> set[str]:
    """Return the options that the command line gives, not left at their defaults."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source and source.name == "COMMANDLINE"}


def check_outputs(out: Path | None, plot: Path | None) -> None:
    """Refuse files that cannot be written, before any run begins."""
    from freshband._files import check_writable

    if out is not None:
        check_writable(out)
    if plot is not None:
        from freshband.reporting.curves import _check_figure

        _check_figure(plot)
        if out is not None and out.resolve() == plot.resolve():
            raise ParameterError(f"--out and --plot must name two files, got {plot} twice")


def tell_notes(notes: Iterable[str]) -> None:
    """Print notes beside the output."""
    for note in notes:
        typer.echo(f"note: {note}", err=True)


def read_toml(path: Path) -> dict[str, Any]:
    """Return what a TOML file holds."""
    try:
        return parse_toml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"cannot read {path}: {reason(error)}") from None
    except ValueError as error:
        raise FileError(f"{path} is not TOML: {reason(error)}") from None


def print_json(value: Any) -> None:
    """Print a value as indented JSON, for other programs to read."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def read_number(text: str | float) -> Any:
    """Return a number if the text is one; the library checks whether it is in range.

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


def read_setting(setting: str, form: str) -> tuple[str, str, Any]:
    """Return the text before the last dot, the key after it, and the value.

    Examples
    --------
    >>> read_setting("channels.n_channels=15", "TABLE.key=value")
    ('channels', 'n_channels', 15)
    """
    name, equals, text = setting.partition("=")
    before, _, key = name.strip().rpartition(".")
    if not equals or not key:
        raise ParameterError(f"--set must be {form}, got {setting!r}")
    return before, key, read_value(text)


def read_settings(settings: Sequence[str]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the channels' settings and each policy's; `read_value` reads the values.

    Examples
    --------
    >>> read_settings(["n_channels=5", "m-exp3:paper.gamma=0.1", "means=[0.2, 0.8]"])
    ({'n_channels': 5, 'means': [0.2, 0.8]}, {'m-exp3:paper': {'gamma': 0.1}})
    """
    channels: dict[str, Any] = {}
    policies: dict[str, dict[str, Any]] = {}
    for setting in settings:
        policy, key, value = read_setting(setting, "key=value or POLICY.key=value")
        target = policies.setdefault(policy, {}) if policy else channels
        if key in target:
            raise ParameterError(f"--set gives {setting.partition('=')[0].strip()!r} twice")
        target[key] = value
    return channels, policies


def split_fleet(
    channels: str, settings: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of a channel model and those of the fleet.

    Examples
    --------
    >>> split_fleet("piecewise", {"n_channels": 5, "ack_delay": 3})
    ({'n_channels': 5}, {'ack_delay': 3})
    """
    from freshband.channels.base import registry
    from freshband.fleet.conditions import SimulatedFleet

    of_fleet = SimulatedFleet.model_fields
    kind = registry[channels]
    of_channels = getattr(kind, "model_fields", settings.keys() - of_fleet)
    for name in settings:
        if name in of_channels and name in of_fleet:
            raise ParameterError(
                f"--set {name}: both {kind.__name__} and the fleet have a parameter of this name"
            )
        if name not in of_channels and name not in of_fleet:
            raise UnknownNameError(
                f"neither {kind.__name__} nor the fleet has a parameter {name!r}; "
                + nearest(name, [*of_channels, *of_fleet])
            )
    fleet = {name: value for name, value in settings.items() if name in of_fleet}
    return {name: settings[name] for name in settings if name not in fleet}, fleet


def check_options(
    given: Mapping[str, Mapping[str, Any]],
    policies: Sequence[str],
    known: Mapping[str, Mapping[str, Any]],
) -> None:
    """Refuse an option of a policy without the same option of that policy with more tokens.

    ``given`` are the options by policy that ``--set`` names, ``known`` those from everywhere.
    """
    from freshband._policy import label_of, parse_policy

    for name, options in given.items():
        for text in policies:
            other = label_of(text)
            if not other.startswith((f"{name}+", f"{name}@")):
                continue
            policy = parse_policy(text.partition("@")[0])
            for key in options.keys() - known.get(other, {}).keys():
                for part in (policy.scheduler, policy.matching):
                    if key in getattr(type(part), "model_fields", {}):
                        raise ParameterError(
                            f"--set {name}.{key} is for {name} alone and leaves {other} at "
                            f"{getattr(part, key)!r}: give {other}.{key} too"
                        )
