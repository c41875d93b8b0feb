"""What one round of training leaves behind."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["RoundRecord"]


@dataclasses.dataclass(frozen=True, eq=False)
class RoundRecord:
    """One round, for M clients and N channels; NaN or -1 where a value does not apply.

    Attributes
    ----------
    round : int
        Counted from 1.
    accuracy, loss : float
        Share of the test set classified rightly and mean cross-entropy after the round; NaN in
        rounds without evaluation.
    client_accuracy : float64 array, shape (M,)
        Accuracy each client can expect on new samples like its own: test accuracy by class,
        weighted by the classes it holds.
    accuracy_spread : float
        Standard deviation of these over clients.
    ages, variance : int64 array, shape (M,), and float
        Ages after the round, equation (8), and their spread over clients, `V_t / M`.
    assignment, alarm : int64 array, shape (M,), and int
        Channel of each client, and the channel found changed; -1 for none.
    delivered, refused : bool arrays, shape (M,)
        `S_t`: whose update got through and was taken; whose was NaN, infinite or of the wrong
        shape.
    staleness : int64 array, shape (M,)
        Model versions an applied update missed, -1 where none was applied.
    weights, steps : float64 arrays, shape (M,)
        `ζ` the round was aggregated with, and what each update was multiplied with.
    contributions, errors, priorities : float64 arrays, shape (M,)
        `C` after the round (33), the last reported validation error of the model without each
        client (35), and `λ` the round was planned with (39).
    channel_means : float64 array, shape (N,)
        Success rates the scheduler believes in after the round.
    trained : int
        The number of clients that trained in the round.
    bytes_up, bytes_down : int
        Payload all clients sent, and received.
    seconds : float
        Wall-clock time of the round.
    """

    round: int
    accuracy: float
    loss: float
    client_accuracy: NDArray[np.float64]
    accuracy_spread: float
    ages: NDArray[np.int64]
    variance: float
    assignment: NDArray[np.int64]
    delivered: NDArray[np.bool_]
    refused: NDArray[np.bool_]
    alarm: int
    staleness: NDArray[np.int64]
    weights: NDArray[np.float64]
    steps: NDArray[np.float64]
    contributions: NDArray[np.float64]
    errors: NDArray[np.float64]
    priorities: NDArray[np.float64]
    channel_means: NDArray[np.float64]
    trained: int
    bytes_up: int
    bytes_down: int
    seconds: float

    def __post_init__(self) -> None:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False

    def same_as(self, other: RoundRecord) -> bool:
        """Whether two records agree bit for bit in everything but the time they took."""
        return all(
            np.array_equal(getattr(self, name), getattr(other, name), equal_nan=True)
            for name in vars(self)
            if name != "seconds"
        )

    def to_json(self) -> str:
        """Return the record as one line of JSON; NaN becomes null."""

        def plain(value: Any) -> Any:
            if isinstance(value, np.ndarray):
                return [plain(each) for each in value.tolist()]
            return None if isinstance(value, float) and np.isnan(value) else value

        return json.dumps({name: plain(value) for name, value in vars(self).items()})


def _stack_records(records: Sequence[RoundRecord]) -> dict[str, NDArray[Any]]:
    """Return every field over all rounds, first axis round; nothing where there are none."""
    names = [field.name for field in dataclasses.fields(RoundRecord)] if records else []
    return {name: np.stack([getattr(record, name) for record in records]) for name in names}


def _unstack_records(fields: Mapping[str, NDArray[Any]], rounds: int) -> list[RoundRecord]:
    """Return the records that `_stack_records` took apart, every bit and type as it was."""
    names = [field.name for field in dataclasses.fields(RoundRecord)] if rounds else []
    if any(len(fields[name]) != rounds for name in names):
        raise ValueError(f"they must be of {rounds} rounds")
    return [
        RoundRecord(
            **{
                name: fields[name][at].item() if fields[name].ndim == 1 else fields[name][at].copy()
                for name in names
            }
        )
        for at in range(rounds)
    ]
