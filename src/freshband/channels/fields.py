"""Fields the channel models share, and their checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from freshband.errors import ParameterError
from freshband.parameters import Parameters

__all__ = [
    "Band",
    "Count",
    "Matrix",
    "Places",
    "Probability",
    "Row",
    "columns_of",
    "forbid",
    "numbers",
]

Count: TypeAlias = Annotated[int, Field(ge=1)]
Probability: TypeAlias = Annotated[float, Field(ge=0, le=1)]


def numbers(name: str, value: object, *, ndim: int) -> npt.NDArray[np.float64]:
    """Return a list (or matrix) of numbers in [0, 1] as an array, or raise `ParameterError`.

    Examples
    --------
    >>> numbers("means", [0.5, 1], ndim=1)
    array([0.5, 1. ])
    >>> numbers("means", [0.5, 1.5], ndim=1)
    Traceback (most recent call last):
    freshband.errors.ParameterError: means must be a list of numbers in [0, 1], got 1.5
    """
    wanted = "a list" if ndim == 1 else "a matrix, a list of equally long lists,"
    wanted = f"{name} must be {wanted} of numbers in [0, 1]"
    try:
        array = np.asarray(value)
    except ValueError:  # ragged
        raise ParameterError(f"{wanted}, got rows of different lengths") from None
    if array.ndim != ndim or array.size == 0:
        raise ParameterError(f"{wanted}, got {_shown(value)}")
    if array.dtype.kind not in "buif":
        raise ParameterError(f"{wanted}, got {_shown(value)}")
    outside = ~((array >= 0) & (array <= 1))  # true for NaN as well
    if outside.any():
        raise ParameterError(f"{wanted}, got {array[outside][0].item()!r}")
    return array.astype(np.float64)


def _shown(value: object) -> str:
    text = repr(value).replace("\n", "")
    return text if len(text) <= 60 else text[:57] + "..."


def _row(value: object, info: ValidationInfo) -> object:
    return numbers(str(info.field_name), value, ndim=1).tolist()


def _matrix(value: object, info: ValidationInfo) -> object:
    return numbers(str(info.field_name), value, ndim=2).tolist()


def _places(value: object) -> object:
    return value.tolist() if isinstance(value, np.ndarray) else value


if TYPE_CHECKING:  # what may be given; what is kept are tuples, which compare, hash and dump
    Row: TypeAlias = Sequence[float] | npt.NDArray[np.float64]
    Matrix: TypeAlias = Sequence[Sequence[float]] | npt.NDArray[np.float64]
    Places: TypeAlias = Sequence[int] | npt.NDArray[np.int64]
else:
    Row = Annotated[tuple[float, ...], BeforeValidator(_row)]
    Matrix = Annotated[tuple[tuple[float, ...], ...], BeforeValidator(_matrix)]
    Places = Annotated[tuple[Annotated[int, Field(ge=2)], ...], BeforeValidator(_places)]


def columns_of(values: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return ``values`` with ``n_channels`` read off the first of the lists ``names`` given.

    An ``n_channels`` of the user's own stays, to be compared once everything is checked.

    Examples
    --------
    >>> columns_of({"means": [[0.1, 0.2, 0.3]]}, "means")["n_channels"]
    3
    """
    if values.get("n_channels") is None:
        for name in names:
            try:
                shape = np.asarray(values.get(name)).shape
            except ValueError:  # ragged: the field's own check says so
                continue
            if shape and shape[-1] > 0:
                return {**values, "n_channels": shape[-1]}
    return dict(values)


def forbid(model: Parameters, given: str, *names: str) -> None:
    """Raise if one of the parameters ``names`` was set although ``given`` makes it void.

    A parameter at its default counts as left out, so a dumped model can be built again.
    """
    for name in names:
        value = getattr(model, name)
        if value != type(model).model_fields[name].default:
            raise ParameterError(f"{name} must be left out when {given} is given, got {value!r}")


class Band(Parameters):
    """N channels whose means are drawn from U[mean_low, mean_high].

    A set of fields for models to share, not a model.
    """

    n_channels: Count = 5
    mean_low: Probability = 0.1
    mean_high: Probability = 0.9

    @model_validator(mode="after")
    def _check_range(self) -> Band:
        if self.mean_low > self.mean_high:
            raise ParameterError(
                f"mean_low must be at most mean_high = {self.mean_high}, got {self.mean_low}"
            )
        return self

    def _check_columns(self, name: str, columns: int) -> None:
        if columns != self.n_channels:
            raise ParameterError(
                f"{name} must have n_channels = {self.n_channels} columns, got {columns}"
            )

    def _draw(self, structure: np.random.Generator, *rows: int) -> npt.NDArray[np.float64]:
        """Draw means of shape (*rows, n_channels)."""
        return structure.uniform(self.mean_low, self.mean_high, (*rows, self.n_channels))
