"""Models of named arrays as rows of numbers, which is what the server computes with."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from freshband.errors import ParameterError
from freshband.federated._valuation import Valuation
from freshband.federated.algorithms import Algorithm, Arrivals
from freshband.flower._wire import Arrays, Update, widened
from freshband.flower.aggregation import PaperAggregation, StrategyAggregation

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
class StrategyRule(Algorithm):
    """A server rule that lets a strategy make the model.

    A stale update began from an older model than the server has now, so it is moved to the present
    one before it is averaged: `w + (w_i - w_start)`. Averaging these is equation (7), and with
    nothing stale it is plain FedAvg.
    """

    aggregation: StrategyAggregation
    rows: Rows
    held: Mapping[int, Update]  # by client, as the loop keeps them
    starts: Mapping[int, Arrays]  # the models they began from, by version

    @property
    def needs_models(self) -> bool:
        return True

    def apply(
        self, model: torch.Tensor, memory: Any, arrivals: Arrivals
    ) -> tuple[NDArray[np.float64], int]:
        """Let the strategy make a new model; the steps of updates are unknown."""
        before, trained = self.rows.arrays(model), []
        for client in np.flatnonzero(arrivals.delivered).tolist():
            sent = self.held[client]
            arrays = self.rows.arrays(arrivals.models[client], sent.arrays)
            # A strategy computes in the type it is given: not in half precision.
            arrays = {name: widened(array) for name, array in arrays.items()}
            if arrivals.staleness[client]:
                arrays = _moved(arrays, self.starts[sent.version], before)
            trained.append((arrays, sent.metrics))
        self.rows.rest = self.aggregation.aggregate(arrivals.round, before, trained)
        model.copy_(self.rows.row(self.rows.rest))
        return np.where(arrivals.delivered, np.nan, 0.0), 1


def _moved(trained: Arrays, start: Arrays, present: Arrays) -> Arrays:
    """Return a client's model as if it had begun from the present one; truth values stay.

    Integers move too: a stale client's counter would otherwise turn the server's back.
    """
    return {
        name: array
        if array.dtype.kind == "b"
        else np.asarray(widened(present[name]) + (array - widened(start[name])))
        for name, array in trained.items()
    }


def open_rule(
    aggregation: StrategyAggregation | PaperAggregation,
    rows: Rows,
    valuation: Valuation | None,
    held: Mapping[int, Update],
    starts: Mapping[int, Arrays],
) -> tuple[Algorithm, float]:
    """Return the server rule for rows, and the clients' step `η`."""
    is_own = isinstance(aggregation, PaperAggregation)
    kinds = {array.dtype for array in rows.like.values()}
    if (is_own or valuation is not None) and [kind.kind for kind in kinds] != ["f"]:
        raise ParameterError(
            "the model must be of one floating-point type for freshband's algorithms and "
            f"contributions, got {sorted(map(str, kinds))}; a StrategyAggregation takes any"
        )
    if isinstance(aggregation, PaperAggregation):
        return aggregation.rule, aggregation.settings.client_lr
    # Where no step is known, an update is the difference of models itself.
    client_lr = 1.0 if valuation is None else valuation.client_lr
    return StrategyRule(aggregation, rows, held, starts), client_lr
