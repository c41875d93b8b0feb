"""What server and clients say to each other, and how it is read without trusting it.

Everything travels in Flower's train messages. An order holds the record ``freshband`` beside the
model and the configuration of the user's strategy; `freshband.flower.channel_mod` reads it and
answers with a record of the same name. The user's training function never sees either.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from freshband.errors import ParameterError

RECORD: Final = "freshband"
FLOATING: Final = "fc"  # kinds of numpy's types: real and complex
Arrays: TypeAlias = dict[str, NDArray[Any]]
Task: TypeAlias = Literal["hello", "train", "resend"]
_TASKS: Final = ("hello", "train", "resend")


@dataclasses.dataclass(frozen=True)
class Order:
    """What the server asks of one client."""

    task: Task  # say who you are, train on this model, or send again what you trained
    round: int = 0  # the round of the order to train: with the client, the name of its update
    channel: int = -1  # the channel to send on, -1 for none
    weight: float = 0.0  # the client's share ζ of the model, for the model without it (42)
    taken: int = 0  # the order whose update the server last took from this client, 0 for none
    keep: bool = False  # whether to keep the update, to send it again
    value: bool = False  # whether to report the error of the model without this client
    further: bool = False  # whether to go on training from the client's own model
    hold: bool = False  # whether to keep the update for a round with a channel, and only say so

    def to_record(self) -> ConfigRecord:
        return ConfigRecord(dataclasses.asdict(self))

    @classmethod
    def read(cls, content: RecordDict) -> Order | None:
        """Return the order in a message, or None if there is none."""
        record = content.get(RECORD)
        if not isinstance(record, ConfigRecord) or record.get("task") not in _TASKS:
            return None
        known = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: cast(Any, value) for name, value in record.items() if name in known})


@dataclasses.dataclass(frozen=True, eq=False)
class Update:
    """What a client trained, as it reached the server."""

    order: int  # the round in which it was ordered
    version: int  # the version of the model it began from
    arrays: Arrays  # the client's model after training; empty where it could not be read
    metrics: dict[str, Any]  # numbers sent with it, such as ``num-examples``
    error: float  # share of its validation samples the model without it gets wrong, or NaN
    problem: str = ""  # why it must be refused


def to_record(arrays: Mapping[str, NDArray[Any]]) -> ArrayRecord:
    """Return arrays as Flower sends them."""
    return ArrayRecord({name: Array(np.asarray(a)) for name, a in arrays.items()})


def to_arrays(record: ArrayRecord) -> Arrays:
    """Return the arrays of a record, which own their memory."""
    return {name: np.array(array.numpy()) for name, array in record.items()}


def read_model(record: ArrayRecord) -> Arrays:
    """Return the arrays of an initial model, or raise a `ParameterError` if one has no numbers."""
    model = to_arrays(record)
    for name, array in model.items():
        if array.dtype.kind not in f"biu{FLOATING}":
            raise ParameterError(
                "every array of the model must be boolean, integer or floating-point (numpy has "
                f"no bfloat16), {name!r} is {array.dtype}"
            )
    return model


def widened(array: NDArray[Any]) -> NDArray[Any]:
    """Return half precision as single precision, to compute with; other types as they are."""
    # In half precision sums lose digits, and the square of anything above 255 is infinite.
    return array.astype(np.float32) if array.dtype == np.float16 else array


def read_update(reply: Message, order: int, version: int, model: Arrays) -> Update:
    """Read a client's answer to an order; nothing in it is believed before it is checked.

    ``model`` has the names, shapes and types that the update must have.
    """
    content = reply.content
    said = content.get(RECORD)
    error = math.nan
    metrics: dict[str, Any] = {}
    try:
        if isinstance(said, MetricRecord) and "error" in said:
            error = float(cast(float, said["error"]))
        for name, record in content.metric_records.items():
            if name != RECORD:
                metrics |= dict(record)
        arrays, problem = _read_arrays(content, model)
    except Exception as trouble:  # whatever foreign bytes may cause
        arrays, problem = {}, f"it cannot be read: {type(trouble).__name__}: {trouble}"
    if not isinstance(said, MetricRecord) or said.get("order") != order:
        problem = problem or f"it does not answer the order of round {order}"
    if not (math.isnan(error) or 0.0 <= error <= 1.0):
        problem = problem or f"its error must be in [0, 1], got {error}"
    return Update(order, version, {} if problem else arrays, metrics, error, problem)


def _read_arrays(content: RecordDict, model: Arrays) -> tuple[Arrays, str]:
    records = list(content.array_records.values())
    if len(records) != 1:
        return {}, f"it must hold one ArrayRecord, got {len(records)}"
    record = records[0]
    if set(record) != set(model):
        odd = sorted(set(record) ^ set(model))[0]
        return {}, f"its arrays must be those of the model, {odd!r} is not in both"
    arrays = {}
    for name, like in model.items():
        if tuple(record[name].shape) != like.shape:  # before the bytes are read
            return {}, f"{name!r} must have the shape {like.shape}, got {tuple(record[name].shape)}"
        array = np.asarray(record[name].numpy())
        if array.shape != like.shape or array.dtype != like.dtype:
            got = f"{array.shape} of {array.dtype}"
            return {}, f"{name!r} must be {like.shape} of {like.dtype}, got {got}"
        if array.dtype.kind in FLOATING and not np.isfinite(array).all():
            return {}, f"{name!r} must be finite"
        arrays[name] = np.array(array)
    return arrays, ""
