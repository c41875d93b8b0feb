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
from freshband.flower.aggregation import Arrival, ModelAggregation, PaperAggregation
from freshband.flower.wire import Arrays, Update

__all__ = ["ArrayRule", "Rows", "open_rule"]

_SINGLE, _DOUBLE = ("e", "f", "F"), ("d", "D")  # numpy's codes of floating-point types


class Rows:
    """Turns the arrays of a model into rows and back without loss.

    A row holds the floating-point numbers: complex ones as two, half precision as single, because
    sums in half precision lose digits. Integers and truth values stay arrays; the present ones of
    the server's model are in ``rest``.
    """

    def __init__(self, model: Arrays) -> None:
        kinds = {array.dtype.char for array in model.values()}
        self._dtype = np.float64 if kinds & set(_DOUBLE) else np.float32
        self.rest = model
        self.like: Arrays = {  # zeros that take no memory
            name: np.broadcast_to(np.zeros((), array.dtype), array.shape)
            for name, array in model.items()
        }

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.size * array.itemsize for array in self.like.values())

    def round(self, row: torch.Tensor) -> None:
        """Round a row to half precision, where the whole model is handed out in it."""
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
        """Return the model of a row as new arrays, completed by those of ``rest``."""
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
class ArrayRule:
    """The server's rule for rows that lets an aggregation of arrays make the model."""

    aggregation: ModelAggregation
    rows: Rows
    held: Mapping[int, Update]  # by client, as the loop keeps them
    starts: Mapping[int, Arrays]  # the models they began from, by version
    everybody_trains: bool = False
    needs_models: bool = True

    def open_memory(self, model: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return nothing: an aggregation has its own memory."""
        return {}

    def apply(
        self, model: torch.Tensor, memory: dict[str, torch.Tensor], arrivals: Arrivals
    ) -> tuple[NDArray[np.float64], int]:
        """Let the aggregation make a new model from what arrived."""
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
    aggregation: ModelAggregation | PaperAggregation,
    valuation: Valuation | None,
    rows: Rows,
    held: Mapping[int, Update],
    starts: Mapping[int, Arrays],
) -> tuple[Algorithm, float]:
    """Return the server's rule for rows, and the clients' step `η`."""
    kinds = {array.dtype for array in rows.like.values()}
    is_own = isinstance(aggregation, PaperAggregation)
    if (is_own or valuation is not None) and [kind.kind for kind in kinds] != ["f"]:
        raise ParameterError(
            "the model must be of one floating-point type for freshband's algorithms and "
            f"contributions, got {sorted(map(str, kinds))}; a StrategyAggregation takes any"
        )
    if isinstance(aggregation, PaperAggregation):
        return aggregation.rule, aggregation.settings.client_lr
    # Where no step is known, an update is the difference of models itself.
    client_lr = 1.0 if valuation is None else valuation.client_lr
    return ArrayRule(aggregation, rows, held, starts), client_lr
