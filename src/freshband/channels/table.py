"""Channels written out in full, round by round: the oblivious adversary."""

from __future__ import annotations

from typing import Annotated, final

import numpy as np
from pydantic import BeforeValidator, ConfigDict, PlainSerializer, ValidationInfo, model_validator

from freshband.channels._fields import nested
from freshband.channels._recording import Offset, Recorded, Recording
from freshband.channels.base import _Floats, register
from freshband.errors import ParameterError


def _array(value: object, info: ValidationInfo) -> _Floats:
    array = nested(value, info, 2)
    array.flags.writeable = False
    return array


_Array = Annotated[_Floats, BeforeValidator(_array), PlainSerializer(np.ndarray.tolist)]


@final
@register("table")
class Table(Recorded):
    """All rounds as a matrix, with a row for each round and a column for each channel.

    With ``states`` all states are fixed in advance, as by the oblivious adversary of Sec. II-B, and
    the model has no means. With ``means`` channel k is Good in round t with probability `μ_k(t)`,
    independently.

    Parameters
    ----------
    states : list of lists of 0 and 1, or array, optional
        `X_k(t)`; either this or ``means``.
    means : list of lists of float in [0, 1], or array, optional
        `μ_k(t)`.
    wrap : bool, default False
        Whether to begin again after the last row; otherwise a longer run is an error.
    offset : int >= 0 or "random", default 0
        The row to begin with; see `Trace`.
    shuffle : bool, default False
        Whether clients and channels are numbered anew in each run; see `Trace`.
    per_client : bool, default False
        Whether links differ per client: ``states`` or ``means`` is then three-dimensional, with a
        matrix for each round that has a row for each client.

    Examples
    --------
    >>> from freshband.channels import Table, open_air
    >>> model = Table(states=[[1, 0], [0, 1]], wrap=True)
    >>> open_air(model, rounds=5, seed=0).block(5).states.tolist()
    [[1, 0], [0, 1], [1, 0], [0, 1], [1, 0]]
    >>> links = Table(states=[[[1, 0], [0, 1]]], wrap=True, per_client=True)
    >>> open_air(links, rounds=5, seed=0).block(5).states.shape
    (5, 2, 2)
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    states: _Array | None = None
    means: _Array | None = None
    wrap: bool = False
    offset: Offset = 0
    shuffle: bool = False

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
        self._recording().check_offset()
        return self

    def _recording(self) -> Recording:
        rows = self.means if self.states is None else self.states
        assert rows is not None  # one of the two is given
        return Recording(
            "the table", rows, self.states is None, self.wrap, self.offset, shuffle=self.shuffle
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Table):
            return False
        one, two = self._recording(), other._recording()
        return one[2:] == two[2:] and np.array_equal(one.rows, two.rows)

    def __hash__(self) -> int:
        recording = self._recording()
        return hash((recording[2:], recording.rows.shape, recording.rows.tobytes()))
