"""What every registered scheduler and matching promises of its parameters and its docstring."""

from __future__ import annotations

import inspect
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from freshband._policy import parse_policy
from freshband.errors import ParameterError, UnknownNameError
from freshband.matching.base import registry as matching_registry
from freshband.schedulers.base import registry as scheduler_registry
from tests.playing import (
    SCHEDULERS,
    documented,
    ours,
    outside_and_inside,
    presets,
)

# ------------------------------------------------------------------------------- bad parameters


SCHEDULER_FIELDS = [
    (name, field)
    for name in SCHEDULERS
    for field in scheduler_registry[name].model_fields  # type: ignore[attr-defined]
]


@pytest.mark.parametrize(("name", "field"), SCHEDULER_FIELDS)
def test_bad_hyper_parameters_are_refused_by_name(name: str, field: str) -> None:
    kind: Any = scheduler_registry[name]
    text = documented(kind, field)
    number = re.match(r"(float|int)\b", text)
    outside, inside = outside_and_inside(text) if number else ([], [])
    assert not number or outside, f"{name} documents no range for {field}"
    wrong: list[Any] = [math.nan, math.inf, -math.inf, True, np.True_, "0.5", "no such", b"1"]
    wrong += [[0.5], {}, object(), np.zeros((9, 9)), 1j, *outside]
    if number and number.group(1) == "int":
        wrong += [1.5, 10**30]
    for value in wrong:
        for build in (
            lambda value: kind(**{field: value}),
            lambda value: parse_policy(name, {field: value}),
        ):
            with pytest.raises(ParameterError, match=f"^{field} must be .*, got ") as caught:
                build(value)
            assert "\n" not in str(caught.value)
    for value in inside:
        kind(**{field: int(value) if value.is_integer() else value})


@pytest.mark.parametrize("name", SCHEDULERS)
def test_unknown_hyper_parameters_are_refused_with_a_hint(name: str) -> None:
    kind: Any = scheduler_registry[name]
    with pytest.raises(UnknownNameError, match="has no parameter 'hazzard'"):
        kind(hazzard=1)
    for field in kind.model_fields:
        with pytest.raises(UnknownNameError, match=f"did you mean '{field}'"):
            kind(**{field + "x": 1})


@pytest.mark.parametrize("name", SCHEDULERS)
def test_presets_and_matchings_of_a_scheduler_exist(name: str) -> None:
    kind = scheduler_registry[name]
    assert kind.presets["default"] == {}
    assert set(kind.matchings) <= set(kind.presets)
    for policy in presets(name):
        parsed = parse_policy(policy)
        preset = policy.partition(":")[2] or "default"
        assert parsed.matching_name == kind.matchings.get(preset, "age")
        for key, value in kind.presets[preset].items():
            assert getattr(parsed.scheduler, key) == value
    assert not kind.matchings or name == "random" or set(kind.matchings.values()) == {"rotate"}


@pytest.mark.parametrize("name", [*SCHEDULERS, *ours(matching_registry)])
def test_docstrings_are_the_documentation(name: str) -> None:
    registry: Any = scheduler_registry if name in SCHEDULERS else matching_registry
    text = inspect.getdoc(registry[name]) or ""
    assert text.splitlines()[0].endswith(".")
    assert "**Deviations" in text
    assert "Examples\n--------\n>>> " in text
    file = Path(inspect.getfile(registry[name]))
    assert file.stem.replace("_", "-") == name
