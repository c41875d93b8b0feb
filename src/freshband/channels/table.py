"""Channels written out in full, round by round: the oblivious adversary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, final

import numpy as np
import numpy.typing as npt
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    model_validator,
)

from freshband.channels.base import Stream, register
from freshband.channels.fields import numbers
from freshband.channels.streams import FRAME, MeansStream, StatesStream, held
from freshband.errors import ParameterError
from freshband.parameters import Parameters, whole_number

__all__ = ["Offset", "Table", "check_offset", "played"]

Scalar = TypeVar("Scalar", bound=np.generic)
Offset: TypeAlias = Annotated[int, Field(ge=0)] | Literal["random"]


def _array(value: object, info: ValidationInfo) -> npt.NDArray[np.float64]:
    array = numbers(str(info.field_name), value, ndim=2)
    array.flags.writeable = False
    return array


_Array = Annotated[
    npt.NDArray[np.float64], BeforeValidator(_array), PlainSerializer(np.ndarray.tolist)
]


@final
@register("table")
class Table(Parameters):
    """The air as a matrix, a row for each round and a column for each channel.

    With ``states`` the air is fixed to the last bit, as by the oblivious adversary of Sec. II-B,
    and the model has no means. With ``means`` channel k is Good in round t with probability
    `μ_k(t)`, independently.

    Parameters
    ----------
    states : list of lists of 0 and 1, or array, optional
        `X_k(t)`; either this or ``means``.
    means : list of lists of float in [0, 1], or array, optional
        `μ_k(t)`.
    wrap : bool, default False
        Whether to begin again after the last row; otherwise the run may not be longer.
    offset : int >= 0 or "random", default 0
        The row to begin with; see `Trace`.

    Examples
    --------
    >>> from freshband.channels import Table, open_air
    >>> model = Table(states=[[1, 0], [0, 1]], wrap=True)
    >>> open_air(model, rounds=5, seed=0).block(5).states.tolist()
    [[1, 0], [0, 1], [1, 0], [0, 1], [1, 0]]
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    states: _Array | None = None
    means: _Array | None = None
    wrap: bool = False
    offset: Offset = 0

    @model_validator(mode="after")
    def _agree(self) -> Table:
        if (self.states is None) == (self.means is None):
            got = "neither" if self.states is None else "both"
            raise ParameterError(f"one of states and means must be given, got {got}")
        if self.states is not None:
            between = (self.states > 0) & (self.states < 1)
            if between.any():
                raise ParameterError(
                    f"states must be 0 or 1, got {self.states[between][0].item()!r}"
                )
        check_offset("the table", self.offset, len(self._rows))
        return self

    @property
    def n_channels(self) -> int:
        """The number of columns."""
        return int(self._rows.shape[1])

    @property
    def has_means(self) -> bool:
        """Whether the table holds means."""
        return self.means is not None

    @property
    def n_rounds(self) -> int | None:
        """The rounds the table lasts; None if it begins again after the last row."""
        passed = 0 if self.offset == "random" else self.offset
        return None if self.wrap else len(self._rows) - passed

    @property
    def _rows(self) -> npt.NDArray[np.float64]:
        rows = self.means if self.states is None else self.states
        assert rows is not None  # one of the two is given
        return rows

    def start(
        self, rounds: int, structure: np.random.Generator, states: np.random.Generator
    ) -> Stream:
        """Open a stream; see `ChannelModel.start`."""
        rounds = whole_number("rounds", rounds, at_least=1)
        how: dict[str, Any] = {"wrap": self.wrap, "offset": self.offset, "rng": structure}
        if self.means is not None:
            pieces = played("the table", self.means, rounds, **how)
            return MeansStream(rounds, self.n_channels, pieces, states)
        bits = played("the table", self._rows.astype(np.uint8), rounds, **how)
        return StatesStream(rounds, self.n_channels, bits)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Table)
            and (self.has_means, self.wrap) == (other.has_means, other.wrap)
            and self.offset == other.offset
            and np.array_equal(self._rows, other._rows)
        )

    def __hash__(self) -> int:
        how = (self.has_means, self.wrap, self.offset)
        return hash((how, self._rows.shape, self._rows.tobytes()))


def check_offset(source: str, offset: int | str, n_rows: int) -> None:
    """Refuse to begin with a row that is not there."""
    if isinstance(offset, int) and offset >= n_rows:
        raise ParameterError(
            f"offset must be less than {n_rows}, the rows of {source}, got {offset}"
        )


def played(
    source: str,
    rows: npt.NDArray[Scalar],
    rounds: int,
    *,
    rounds_per_row: int = 1,
    wrap: bool = False,
    offset: int | Literal["random"] = 0,
    rng: np.random.Generator,
) -> Iterator[npt.NDArray[Scalar]]:
    """Return pieces that play ``rows`` once, or again and again, from the row ``offset`` on.

    A random offset is drawn with ``rng``: any row where ``wrap`` is true, else one of those from
    which on the rows last.

    Raises
    ------
    ParameterError
        If the rows do not last ``rounds`` rounds and ``wrap`` is false, or if a random offset has
        nothing to choose from.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> played("the table", np.ones((3, 2)), 7, rounds_per_row=2, rng=rng)
    Traceback (most recent call last):
    freshband.errors.ParameterError: rounds must be at most 6, the length of the table (or ...
    """
    if offset == "random":
        offset = _draw_offset(source, len(rows), rounds, rounds_per_row, wrap, rng)
    if offset > 0:
        rows = np.roll(rows, -offset, axis=0) if wrap else rows[offset:]
        source = f"{source} from row {offset} on"
    length = len(rows) * rounds_per_row
    if length < rounds and not wrap:
        raise ParameterError(
            f"rounds must be at most {length}, the length of {source} (or set wrap=true to begin "
            f"again), got {rounds}"
        )
    if length < min(rounds, FRAME):  # a short table goes round many times: write it out
        rows = np.tile(rows, (-(-min(rounds, FRAME) // length), 1))
    lengths = np.full(len(rows), rounds_per_row, np.int64)
    times = -(-rounds // (len(rows) * rounds_per_row))
    return (piece for _ in range(times) for piece in held(rows, lengths))


def _draw_offset(
    source: str, n_rows: int, rounds: int, rounds_per_row: int, wrap: bool, rng: np.random.Generator
) -> int:
    needed = -(-rounds // rounds_per_row)
    starts = n_rows if wrap else n_rows - needed + 1
    if starts == 1:
        raise ParameterError(
            f"offset='random' needs fewer rounds than the {n_rows * rounds_per_row} of {source} "
            f"to have a choice, or wrap=true and several rows, got {rounds}"
        )
    return int(rng.integers(max(starts, 1)))
