"""Declarative validation: every configurable object is a frozen `Parameters` model.

A validation error of pydantic becomes a one-line `ParameterError` that names the parameter, the
allowed range and the value given.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, Self, get_args, get_origin

import annotated_types
import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from freshband.errors import ParameterError, UnknownNameError, nearest, shown

_MOST: Final = 10**12  # no larger count makes sense; products of two still fit into a float


class Parameters(BaseModel):
    """Frozen, validated hyper-parameters, declared as annotated fields.

    Unknown names are errors with a suggestion; so are settings without effect, see `unused`.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, validate_default=False
    )

    def __init__(self, **values: Any) -> None:
        self._fill(values)
        for why in self.unused().values():
            raise ParameterError(why)

    @classmethod
    def as_stored(cls, values: Mapping[str, Any]) -> Self:
        """Return saved parameters, including those that have no effect."""
        self = cls.__new__(cls)
        self._fill(dict(values))
        return self

    def unused(self) -> dict[str, str]:
        """Return settings that are given but have no effect, and where each belongs."""
        return {}

    def _fill(self, values: dict[str, Any]) -> None:
        """Set the fields, or raise `ParameterError`."""
        for name, value in values.items():
            field = type(self).model_fields.get(name)
            if field is not None and _is_disguised(value, field.annotation):
                raise ParameterError(f"{name} must be {_allowed(field)}, got {shown(value)}")
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise _explain(type(self), error) from None
        for name, value in self:
            if type(value) is int and abs(value) > _MOST:
                raise ParameterError(f"{name} must be at most {_MOST}, got {shown(value)}")


def whole_number(name: str, value: object, *, at_least: int) -> int:
    """Return ``value`` as an int, or raise a `ParameterError` that states what is allowed."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float | np.integer | np.floating)
        or not at_least <= value < math.inf
        or value != int(value)
    ):
        raise ParameterError(f"{name} must be a whole number >= {at_least}, got {shown(value)}")
    if value > _MOST:
        raise ParameterError(
            f"{name} must be a whole number in [{at_least}, {_MOST}], got {shown(value)}"
        )
    return int(value)


def file_path(name: str, value: object) -> Path:
    """Return ``value`` as a path, or raise a `ParameterError` if it cannot name a file."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise ParameterError(f"{name} must be the path of a file, got {shown(value)}")
    return Path(text)


def _explain(owner: type[Parameters], error: ValidationError) -> ParameterError:
    """Turn the first problem that pydantic found into a one-line error."""
    problem = error.errors(include_url=False)[0]
    name = str(problem["loc"][0]) if problem["loc"] else ""
    if problem["type"] == "extra_forbidden":
        hint = nearest(name, owner.model_fields)
        return UnknownNameError(f"{owner.__name__} has no parameter {name!r}; {hint}")
    if problem["type"] == "missing":
        return ParameterError(f"{owner.__name__} needs a value for {name!r}")
    if problem["type"] == "value_error":  # raised by a validator of ours: already a sentence
        return ParameterError(str(problem["ctx"]["error"]))
    given = shown(problem["input"])
    return ParameterError(f"{name} must be {_allowed(owner.model_fields[name])}, got {given}")


def _is_disguised(value: object, annotation: Any) -> bool:
    """Whether pydantic would silently turn a truth value or a text into a number."""
    parts = list(_alternatives(annotation))
    if isinstance(value, bool | np.bool_):
        return not _allows_bool(annotation)
    if not isinstance(value, str | bytes) or not {int, float}.intersection(parts):
        return False
    choices = [choice for part in parts if get_origin(part) is Literal for choice in get_args(part)]
    return str not in parts and value not in choices


def _allows_bool(annotation: Any) -> bool:
    return annotation is bool or any(_allows_bool(part) for part in get_args(annotation))


def _allowed(field: FieldInfo) -> str:
    """Describe what a field accepts, such as ``a number in (0, 1)``."""
    choices, numbers = [], []
    for part in _alternatives(field.annotation):
        if get_origin(part) is Literal:
            choices += [repr(value) for value in get_args(part)]
        elif part is type(None):
            choices.append("None")
        elif part is int:
            numbers.append("a whole number" + _interval(_bounds(field)))
        elif part is float:
            numbers.append("a number" + _interval(_bounds(field)))
        elif part is bool:
            choices.append("true or false")
        elif part is str:
            numbers.append("text")
        else:
            numbers.append("a list of numbers" + _interval(_bounds(field)))
    described = numbers + (
        [("one of " if len(choices) > 1 else "") + ", ".join(choices)] if choices else []
    )
    return " or ".join(dict.fromkeys(described))


def _alternatives(annotation: Any) -> Iterable[Any]:
    parts = get_args(annotation)
    if parts and get_origin(annotation) not in (Literal, list, tuple):
        for part in parts:
            if isinstance(part, type) or get_origin(part) is not None:
                yield from _alternatives(part)
    else:
        yield annotation


def _bounds(field: FieldInfo) -> list[Any]:
    found = list(field.metadata)
    stack = list(get_args(field.annotation))
    while stack:
        part = stack.pop()
        found += list(getattr(part, "__metadata__", ()))
        stack += list(get_args(part))
    flat: list[Any] = []
    for item in found:
        flat += list(item.metadata) if isinstance(item, FieldInfo) else [item]
    return flat


def _interval(metadata: list[Any]) -> str:
    low, high = "", ""
    for item in metadata:
        if isinstance(item, annotated_types.Gt):
            low = f"({item.gt}"
        elif isinstance(item, annotated_types.Ge):
            low = f"[{item.ge}"
        elif isinstance(item, annotated_types.Lt):
            high = f"{item.lt})"
        elif isinstance(item, annotated_types.Le):
            high = f"{item.le}]"
    if low and high:
        return f" in {low}, {high}"
    if low:
        return (" > " if low[0] == "(" else " >= ") + low[1:]
    if high:
        return (" < " if high[-1] == ")" else " <= ") + high[:-1]
    return ""
