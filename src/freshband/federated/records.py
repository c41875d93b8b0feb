"""What one round of training leaves behind."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


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
        Ages after the round, equation (8), and their spread over clients, `V_t / M`. An update
        that gets through a second time, because its client does not know, makes the age 1 again.
    assignment, alarm : int64 array, shape (M,), and int
        Channel of each client, and the channel found changed; -1 for none.
    delivered, refused : bool arrays, shape (M,)
        `S_t`: whose update got through and was taken; whose was NaN, infinite, of the wrong
        shape or too long.
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
    expected_ages : float64 array, shape (M,), optional
        The ages the scheduler expects after the round, where acknowledgements may be late or lost;
        else those are the true ones.
    present : bool array, shape (M,), optional
        Which clients were there in the round, where they may be absent. ``variance`` is that of
        clients that were.
    too_long : bool array, shape (M,), optional
        Whose update was refused for its length alone, in rounds in which one was.
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
    expected_ages: NDArray[np.float64] | None = None
    present: NDArray[np.bool_] | None = None
    too_long: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False

    @property
    def counted_ages(self) -> NDArray[np.int64]:
        """Ages of the clients that were there; of all where nobody was."""
        there = self.present is not None and self.present.any()
        return self.ages[self.present] if there else self.ages

    def same_as(self, other: RoundRecord) -> bool:
        """Whether two records agree bit for bit in everything but the time they took."""
        return all(
            np.array_equal(self._get(name), other._get(name), equal_nan=True)
            for name in vars(self)
            if name != "seconds"
        )

    def _get(self, name: str) -> Any:
        """Return a field; one that was left out has the value that goes without saying."""
        if name == "expected_ages" and self.expected_ages is None:
            return self.ages.astype(np.float64)
        if name == "present" and self.present is None:
            return np.ones_like(self.delivered)
        if name == "too_long" and self.too_long is None:
            return np.zeros_like(self.delivered)
        return getattr(self, name)

    def to_json(self) -> str:
        """Return the record as one line of JSON; NaN becomes null."""

        def plain(value: Any) -> Any:
            if isinstance(value, np.ndarray):
                return [plain(each) for each in value.tolist()]
            return None if isinstance(value, float) and np.isnan(value) else value

        known = {name: value for name, value in vars(self).items() if value is not None}
        return json.dumps({name: plain(value) for name, value in known.items()})


_OPTIONAL = ("expected_ages", "present", "too_long")


def _stack_records(records: Sequence[RoundRecord]) -> dict[str, NDArray[Any]]:
    """Return every field over all rounds, first axis round; nothing where there are none.

    Optional fields that no record has are left out.
    """
    names = [field.name for field in dataclasses.fields(RoundRecord)] if records else []
    told = [
        name
        for name in names
        if name not in _OPTIONAL or any(getattr(each, name) is not None for each in records)
    ]
    return {name: np.stack([record._get(name) for record in records]) for name in told}


def _unstack_records(fields: Mapping[str, NDArray[Any]], rounds: int) -> list[RoundRecord]:
    """Return the records that `_stack_records` took apart, every bit and type as it was."""
    names = [field.name for field in dataclasses.fields(RoundRecord)] if rounds else []
    names = [name for name in names if name in fields or name not in _OPTIONAL]
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
