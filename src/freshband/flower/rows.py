"""Models of named arrays as rows of numbers, which is what the server computes with."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from freshband.errors import ParameterError
from freshband.federated.algorithms import Algorithm, Arrivals
from freshband.federated.valuation import Valuation
from freshband.flower.aggregation import Aggregation, Arrival, PaperAggregation
from freshband.flower.wire import Arrays, Update

__all__ = ["ArrayRule", "Rows", "open_rule"]

_SINGLE, _DOUBLE = ("e", "f", "F"), ("d", "D")  # numpy's codes of floating-point types


class Rows:
    """Turns arrays of one model into rows and back; no number loses a digit.

    A row holds the floating-point numbers, complex ones as two, half precision as single
    precision: in half precision sums lose digits. Integers and truth values stay arrays.

    Parameters
    ----------
    model : dict of arrays
        Names, shapes and types of them all.

    Attributes
    ----------
    like : dict of arrays
        Zeros that take no memory.
    rest : dict of arrays
        Where the server's model is at present; rows leave out its integers and truth values.

    Examples
    --------
    >>> rows = Rows({"w": np.array([1.0, 2.0], np.float16), "seen": np.array(3)})
    >>> rows.row({"w": np.array([4.0, 5.0], np.float16), "seen": np.array(6)})
    tensor([4., 5.])
    >>> rows.arrays(torch.tensor([7.0, 8.0]))
    {'w': array([7., 8.], dtype=float16), 'seen': array(3)}
    """

    def __init__(self, model: Arrays) -> None:
        kinds = {array.dtype.char for array in model.values()}
        self._dtype = np.float64 if kinds & set(_DOUBLE) else np.float32
        self.rest = model
        self.like: Arrays = {
            name: np.broadcast_to(np.zeros((), array.dtype), array.shape)
            for name, array in model.items()
        }

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.size * array.itemsize for array in self.like.values())

    def round(self, row: torch.Tensor) -> None:
        """Round a row to the numbers that are handed out, where all are of half precision."""
        if {array.dtype.char for array in self.like.values()} == {"e"}:
            row.copy_(row.to(torch.float16))

    def row(self, arrays: Mapping[str, NDArray[Any]]) -> torch.Tensor:
        """Return the floating-point numbers of a model as a new row."""
        parts = [np.zeros(0, self._dtype)]
        for name, like in self.like.items():
            if _in_row(like):
                flat = np.asarray(arrays[name], like.dtype).ravel()
                parts.append(flat.view(like.real.dtype).astype(self._dtype))
        return torch.from_numpy(np.concatenate(parts))

    def arrays(self, row: torch.Tensor, rest: Arrays | None = None) -> Arrays:
        """Return the model of a row, as new arrays; what no row holds is that of ``rest``."""
        rest = self.rest if rest is None else rest
        numbers, at, found = row.numpy(), 0, {}
        for name, like in self.like.items():
            if not _in_row(like):
                found[name] = rest[name]
                continue
            end = at + like.size * (2 if like.dtype.kind == "c" else 1)
            part = numbers[at:end].astype(like.real.dtype)
            found[name] = part.view(like.dtype).reshape(like.shape)
            at = end
        return found


def _in_row(like: NDArray[Any]) -> bool:
    return like.dtype.char in (*_SINGLE, *_DOUBLE)


@dataclasses.dataclass(eq=False)
class ArrayRule(Algorithm):
    """Lets an `Aggregation` of arrays move the server's row.

    Parameters
    ----------
    aggregation : Aggregation
        What becomes of what got through.
    rows : Rows
        How arrays become rows.
    held, starts : dicts
        Updates by client, and the models they began from by version, as the loop keeps them.
    """

    aggregation: Aggregation
    rows: Rows
    held: Mapping[int, Update]
    starts: Mapping[int, Arrays]

    @property
    def needs_models(self) -> bool:
        """An aggregation is handed models."""
        return True

    def apply(
        self, model: torch.Tensor, memory: Any, arrivals: Arrivals
    ) -> tuple[NDArray[np.float64], int]:
        """Hand what arrived to the aggregation, and take the model it makes of it."""
        taken = []
        for client in np.flatnonzero(arrivals.delivered).tolist():
            sent, staleness = self.held[client], int(arrivals.staleness[client])
            arrays = self.rows.arrays(arrivals.models[client], sent.arrays)
            update = dataclasses.replace(sent, arrays=arrays)
            taken.append(Arrival(client, update, self.starts[sent.version], staleness))
        self.rows.rest, steps, passed = self.aggregation.aggregate(
            arrivals.round, self.rows.arrays(model), taken, arrivals.weights
        )
        model.copy_(self.rows.row(self.rows.rest))
        return steps, passed


def open_rule(
    aggregation: Aggregation | PaperAggregation,
    valuation: Valuation | None,
    rows: Rows,
    held: Mapping[int, Update],
    starts: Mapping[int, Arrays],
) -> tuple[Algorithm, float]:
    """Return what moves the server's row, and the clients' step `η`."""
    kinds = {array.dtype for array in rows.like.values()}
    is_own = isinstance(aggregation, PaperAggregation)
    if (is_own or valuation is not None) and [kind.kind for kind in kinds] != ["f"]:
        raise ParameterError(
            "the model must be of one floating-point type for freshband's algorithms and "
            f"contributions, got {sorted(map(str, kinds))}; a StrategyAggregation takes any"
        )
    if isinstance(aggregation, PaperAggregation):
        return aggregation.rule, aggregation.settings.client_lr
    # Where nobody names a step, an update is the way itself.
    client_lr = 1.0 if valuation is None else valuation.client_lr
    return ArrayRule(aggregation, rows, held, starts), client_lr
