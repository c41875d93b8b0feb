"""Shared parts of channel models: fields with their checks, and models described by means."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from freshband.channels.base import Stream, _Floats, _Rng, fit_clients
from freshband.channels.streams import MeansStream, revised
from freshband.errors import ParameterError, shown
from freshband.parameters import Parameters, whole_number

Natural: TypeAlias = Annotated[int, Field(ge=0)]
Count: TypeAlias = Annotated[int, Field(ge=1)]
Probability: TypeAlias = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True)
class AtMost:
    """Marks a parameter that must not be greater than another one."""

    limit: str


Low: TypeAlias = Annotated[Probability, AtMost("mean_high")]

_NESTED = (
    "a list",
    "a matrix, a list of equally long lists,",
    "a list of matrices of one shape, a row for each client,",
)


def numbers(name: str, value: object, *, ndim: int) -> _Floats:
    """Return numbers in [0, 1], nested ``ndim`` times, as an array; or raise `ParameterError`."""
    wanted = f"{name} must be {_NESTED[ndim - 1]} of numbers in [0, 1]"
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


def nested(value: object, info: ValidationInfo, depth: int) -> _Floats:
    """Return a field's numbers, nested once more where the links of the model differ per client.

    The field ``per_client`` must be declared before those that depend on it.
    """
    return numbers(str(info.field_name), value, ndim=depth + info.data.get("per_client", False))


def _row(value: object, info: ValidationInfo) -> object:
    return nested(value, info, 1).tolist()


def _matrix(value: object, info: ValidationInfo) -> object:
    return nested(value, info, 2).tolist()


def _places(value: object) -> object:
    return value.tolist() if isinstance(value, np.ndarray) else value


if TYPE_CHECKING:  # what users may pass; stored as tuples, which compare, hash and dump
    Row: TypeAlias = Sequence[float] | Sequence[Sequence[float]] | _Floats
    Matrix: TypeAlias = Sequence[Sequence[float]] | Sequence[Sequence[Sequence[float]]] | _Floats
    Places: TypeAlias = Sequence[int] | npt.NDArray[np.int64]
else:
    _Row = tuple[float, ...]
    _Rows = tuple[_Row, ...]
    Row = Annotated[_Row | _Rows, BeforeValidator(_row)]
    Matrix = Annotated[_Rows | tuple[_Rows, ...], BeforeValidator(_matrix)]
    Places = Annotated[tuple[Annotated[int, Field(ge=2)], ...], BeforeValidator(_places)]


def forbid(model: Parameters, reason: str, *names: str) -> None:
    """Raise if one of the parameters ``names`` was set, which have no effect for this ``reason``.

    A parameter at its default counts as left out, so a dumped model can be rebuilt.
    """
    for name in names:
        value = getattr(model, name)
        if value != type(model).model_fields[name].default:
            raise ParameterError(f"{name} must be left out when {reason}, got {value!r}")


class MeansModel(Parameters):
    """A model described by its means: `_pieces` gives them, the states are independent draws."""

    has_means: ClassVar[bool] = True

    n_channels: Count = 5

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        for name, field in type(self).model_fields.items():
            for mark in field.metadata:
                if isinstance(mark, AtMost):
                    value, most = getattr(self, name), getattr(self, mark.limit)
                    if value > most:
                        raise ParameterError(
                            f"{name} must be at most {mark.limit} = {most}, got {value}"
                        )
        return self

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

    mean_low: Low = 0.1
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


_OF_LINKS = ("p_differ", "offset_sd")


class LinkBand(Band):
    """A band whose links may differ per client: means of M × N links, drawn or given."""

    per_client: bool = False
    p_differ: Probability = 1.0
    offset_sd: Annotated[float, Field(ge=0, le=10)] = 0.0

    @model_validator(mode="after")
    def _check_links(self) -> LinkBand:
        if not self.per_client:
            forbid(self, "links are the same for all clients (per_client=false)", *_OF_LINKS)
        if self.offset_sd > 0:
            forbid(self, "offset_sd is given", "p_differ")
        if self.n_clients is not None:
            forbid(self, "means is given", *_OF_LINKS)
        return self

    @property
    def n_clients(self) -> int | None:
        """The number of clients for which means are given; see `LinkModel.n_clients`."""
        shapes = (np.shape(getattr(self, name)) for name in self._lists if self.per_client)
        return next((shape[-2] for shape in shapes if shape), None)

    def start(
        self, rounds: int, structure: _Rng, states: _Rng, clients: int | None = None
    ) -> Stream:
        """Open a stream; see `LinkModel.start`."""
        if not self.per_client:
            return super().start(rounds, structure, states)
        rounds, clients = whole_number("rounds", rounds, at_least=1), fit_clients(self, clients)
        pieces = self._link_pieces(rounds, clients, structure)
        return MeansStream(rounds, self.n_channels, pieces, states, clients=clients)

    def _link_pieces(self, rounds: int, clients: int, structure: _Rng) -> Iterable[_Floats]:
        """Return the means of all links: those of the same model with a column for each link."""
        if self.offset_sd > 0:
            odds = np.exp(-structure.normal(0, self.offset_sd, (clients, 1)))

            def shift(means: _Floats) -> _Floats:  # logit(mean) + offset, without infinities
                base = means[:, None]
                return (base / (base + (1 - base) * odds)).reshape(len(means), -1)

            return revised(self._pieces(rounds, structure), shift)
        if self.p_differ == 1:
            return self._widened(clients)._pieces(rounds, structure)
        own = structure.random((clients, self.n_channels)) < self.p_differ

        def mix(means: _Floats) -> _Floats:  # the last columns are the channels' own means
            links = means.reshape(len(means), clients + 1, self.n_channels)
            return np.where(own, links[:, :-1], links[:, -1:]).reshape(len(means), -1)

        return revised(self._widened(clients + 1)._pieces(rounds, structure), mix)

    def _widened(self, clients: int) -> Self:
        """Return the same model with the channels of each client as channels of their own."""
        return self.model_copy(update={"n_channels": clients * self.n_channels})


class RatedBand(Band):
    """N channels, each with one success rate for the whole run, drawn or given."""

    _lists: ClassVar[tuple[str, ...]] = ("means",)

    means: Row | None = None

    @model_validator(mode="after")
    def _check_means(self) -> RatedBand:
        if self.means is not None:
            forbid(self, "means is given", "mean_low", "mean_high")
        return self

    def _rates(self, structure: _Rng) -> _Floats:
        return self._draw(structure) if self.means is None else np.ravel(self.means)

    def _pieces(self, rounds: int, structure: _Rng) -> Iterable[_Floats]:
        return [np.broadcast_to(self._rates(structure), (rounds, self.n_channels))]
