"""Shared parts of channel models: fields with their checks, and models described by means."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from freshband.channels.base import Stream, _Floats, _Rng
from freshband.channels.streams import MeansStream
from freshband.errors import ParameterError, shown
from freshband.parameters import Parameters, whole_number

Natural: TypeAlias = Annotated[int, Field(ge=0)]
Count: TypeAlias = Annotated[int, Field(ge=1)]
Probability: TypeAlias = Annotated[float, Field(ge=0, le=1)]


def numbers(name: str, value: object, *, ndim: int) -> _Floats:
    """Return a list (or matrix) of numbers in [0, 1] as an array, or raise `ParameterError`."""
    wanted = "a list" if ndim == 1 else "a matrix, a list of equally long lists,"
    wanted = f"{name} must be {wanted} of numbers in [0, 1]"
    try:
        array = np.asarray(value)
    except ValueError:  # ragged
        raise ParameterError(f"{wanted}, got rows of different lengths") from None
    if array.ndim != ndim or array.size == 0 or array.dtype.kind not in "buif":
        raise ParameterError(f"{wanted}, got {shown(value, 60)}")
    outside = ~((array >= 0) & (array <= 1))  # true for NaN as well
    if outside.any():
        raise ParameterError(f"{wanted}, got {array[outside][0].item()!r}")
    return array.astype(np.float64)


def _row(value: object, info: ValidationInfo) -> object:
    return numbers(str(info.field_name), value, ndim=1).tolist()


def _matrix(value: object, info: ValidationInfo) -> object:
    return numbers(str(info.field_name), value, ndim=2).tolist()


def _places(value: object) -> object:
    return value.tolist() if isinstance(value, np.ndarray) else value


if TYPE_CHECKING:  # what users may pass; stored as tuples, which compare, hash and dump
    Row: TypeAlias = Sequence[float] | _Floats
    Matrix: TypeAlias = Sequence[Sequence[float]] | _Floats
    Places: TypeAlias = Sequence[int] | npt.NDArray[np.int64]
else:
    Row = Annotated[tuple[float, ...], BeforeValidator(_row)]
    Matrix = Annotated[tuple[tuple[float, ...], ...], BeforeValidator(_matrix)]
    Places = Annotated[tuple[Annotated[int, Field(ge=2)], ...], BeforeValidator(_places)]


def forbid(model: Parameters, given: str, *names: str) -> None:
    """Raise if one of the parameters ``names`` was set although ``given`` replaces it.

    A parameter at its default counts as left out, so a dumped model can be rebuilt.
    """
    for name in names:
        value = getattr(model, name)
        if value != type(model).model_fields[name].default:
            raise ParameterError(f"{name} must be left out when {given} is given, got {value!r}")


def check_order(model: Parameters, name: str, limit: str) -> None:
    """Raise if the parameter ``name`` is greater than the parameter ``limit``."""
    value, most = getattr(model, name), getattr(model, limit)
    if value > most:
        raise ParameterError(f"{name} must be at most {limit} = {most}, got {value}")


class MeansModel(Parameters):
    """A model described by its means: `_pieces` gives them, the states are independent draws."""

    has_means: ClassVar[bool] = True

    n_channels: Count = 5

    def start(self, rounds: int, structure: _Rng, states: _Rng) -> Stream:
        """Open a stream; see `ChannelModel.start`."""
        rounds = whole_number("rounds", rounds, at_least=1)
        return MeansStream(rounds, self.n_channels, self._pieces(rounds, structure), states)

    @abstractmethod
    def _pieces(self, rounds: int, structure: _Rng) -> Iterable[_Floats]:
        """Return the means of all rounds, piece by piece; see `freshband.channels.streams`."""


class Band(MeansModel):
    """N channels whose means are drawn from U[mean_low, mean_high], or given."""

    _lists: ClassVar[tuple[str, ...]] = ()  # lists and matrices with a column for each channel

    mean_low: Probability = 0.1
    mean_high: Probability = 0.9

    @model_validator(mode="before")
    @classmethod
    def _fit(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Infer ``n_channels`` from the first list given; an explicit value is checked later."""
        if values.get("n_channels") is None:
            for name in cls._lists:
                try:
                    shape = np.asarray(values.get(name)).shape
                except ValueError:  # ragged: the field's own check says so
                    continue
                if shape and shape[-1] > 0:
                    return {**values, "n_channels": shape[-1]}
        return values

    @model_validator(mode="after")
    def _check_band(self) -> Band:
        check_order(self, "mean_low", "mean_high")
        for name in self._lists:
            shape = np.shape(getattr(self, name))
            if shape and shape[-1] != self.n_channels:
                raise ParameterError(
                    f"{name} must have n_channels = {self.n_channels} columns, got {shape[-1]}"
                )
        return self

    def _draw(self, structure: _Rng, *rows: int) -> _Floats:
        """Draw means of shape (*rows, n_channels)."""
        return structure.uniform(self.mean_low, self.mean_high, (*rows, self.n_channels))


class RatedBand(Band):
    """N channels, each with one success rate for the whole run, drawn or given."""

    _lists: ClassVar[tuple[str, ...]] = ("means",)

    means: Row | None = None

    @model_validator(mode="after")
    def _check_means(self) -> RatedBand:
        if self.means is not None:
            forbid(self, "means", "mean_low", "mean_high")
        return self

    def _rates(self, structure: _Rng) -> _Floats:
        return self._draw(structure) if self.means is None else np.array(self.means)

    def _pieces(self, rounds: int, structure: _Rng) -> Iterable[_Floats]:
        return [np.broadcast_to(self._rates(structure), (rounds, self.n_channels))]
