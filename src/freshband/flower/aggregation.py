"""What becomes of what got through: freshband's own algorithms, or any Flower strategy.

An update may be stale: its client began from an older model than the server has now. What counts
is the way it went, so a stale update is moved to where the server is before anybody averages it:
`w + (w_i - w_start)`. Averaging these is equation (7), and with nothing stale it is plain FedAvg.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from freshband.errors import ParameterError
from freshband.federated.settings import Training
from freshband.flower.wire import Arrays, Update, to_arrays, to_record, widened

__all__ = ["Aggregation", "Arrival", "PaperAggregation", "StrategyAggregation"]


@dataclasses.dataclass(frozen=True, eq=False)
class Arrival:
    """An update that got through.

    Attributes
    ----------
    client : int
        Whose it is.
    update : Update
        What it sent.
    start : dict of arrays
        The model it began from.
    staleness : int
        Versions of the model it missed.
    """

    client: int
    update: Update
    start: Arrays
    staleness: int


class Aggregation(Protocol):
    """How updates become a new model; what it remembers between rounds is `memory`."""

    def configure(
        self, round: int, model: ArrayRecord, grid: Grid, nodes: Sequence[int]
    ) -> Mapping[int, RecordDict]:
        """Return what to send to each node that trains in this round."""
        ...

    def aggregate(
        self,
        round: int,
        model: Arrays,
        arrivals: Sequence[Arrival],
        weights: NDArray[np.float64],
    ) -> tuple[Arrays, NDArray[np.float64], int]:
        """Return the new model, each client's step (NaN: unknown) and the versions passed.

        Parameters
        ----------
        round : int
        model : dict of arrays
            `w_t`; not to be written to.
        arrivals : sequence of Arrival
            In the order of clients; may be empty.
        weights : float64 array, shape (n_clients,)
            `ζ`.
        """
        ...

    def served(self, model: Arrays) -> Arrays:
        """Return the model to hand out and to evaluate: the newest, or another made of it."""
        ...

    def memory(self) -> Arrays:
        """Return what must be saved with the run."""
        ...

    def restore(self, memory: Arrays) -> None:
        """Take back what `memory` returned."""
        ...


class PaperAggregation:
    """The algorithms of `freshband.federated.algorithms`: the paper's rule and the others.

    Parameters
    ----------
    settings : Training
        ``algorithm``, ``algorithm_options`` and ``client_lr``.
    """

    def __init__(self, settings: Training) -> None:
        self.settings = settings
        self.rule = settings.build_algorithm()

    def configure(
        self, round: int, model: ArrayRecord, grid: Grid, nodes: Sequence[int]
    ) -> Mapping[int, RecordDict]:
        """Send the model and the number of the round."""
        config = ConfigRecord({"server-round": round, "lr": self.settings.client_lr})
        return {node: RecordDict({"arrays": model, "config": config}) for node in nodes}


class StrategyAggregation:
    """Any Flower strategy's aggregation: FedAvg, FedAdam, Krum or a user's own.

    The strategy configures training and aggregates, as ever; who trains and whose update counts
    is freshband's to say, so its sampling (``fraction_train``) is not asked.

    Parameters
    ----------
    strategy : flwr.serverapp.strategy.Strategy
        It gets the updates as a `FedAvg` of this round would: models, moved to where the server
        is now.
    examples : {"reported", "equal"}, default "reported"
        Whether clients say themselves how many examples they trained on, which is their weight in
        an average, or all count the same. A client that lies gains weight: where clients are not
        trusted take ``"equal"``.
    config : mapping, optional
        What to send along to the clients.

    Notes
    -----
    What the strategy keeps in attributes that are arrays, numbers, or dicts, lists or ArrayRecords
    of arrays (momentum, second moments, counters) is saved in checkpoints.
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        examples: Literal["reported", "equal"] = "reported",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(strategy, Strategy):
            raise ParameterError(f"strategy must be a Flower Strategy, got {strategy!r}")
        if examples not in ("reported", "equal"):
            raise ParameterError(f"examples must be 'reported' or 'equal', got {examples!r}")
        self.strategy = strategy
        self.examples = examples
        self.metrics: dict[int, MetricRecord] = {}
        self._config = dict(config or {})
        self._key = getattr(strategy, "weighted_by_key", "num-examples")

    def configure(
        self, round: int, model: ArrayRecord, grid: Grid, nodes: Sequence[int]
    ) -> Mapping[int, RecordDict]:
        """Let the strategy say what to send."""
        least = max(getattr(self.strategy, name, 0) for name in _LEAST)
        known = list(grid.get_node_ids())
        if least > len(known):  # it would wait for more for ever
            raise ParameterError(f"the strategy wants {least} nodes, there are {len(known)}")
        made = list(
            self.strategy.configure_train(round, model, ConfigRecord(dict(self._config)), grid)
        )
        if not made and nodes:
            raise ParameterError("the strategy must train: fraction_train is 0, it sends nothing")
        by_node = {message.metadata.dst_node_id: message.content for message in made}
        return {node: RecordDict(dict(by_node.get(node, made[0].content))) for node in nodes}

    def aggregate(
        self,
        round: int,
        model: Arrays,
        arrivals: Sequence[Arrival],
        weights: NDArray[np.float64],
    ) -> tuple[Arrays, NDArray[np.float64], int]:
        """Hand the updates to the strategy; see `Aggregation.aggregate`."""
        steps = np.zeros(len(weights))
        if not arrivals:
            return model, steps, 1
        steps[[arrival.client for arrival in arrivals]] = np.nan
        arrays, metrics = self.strategy.aggregate_train(
            round, [self._message(arrival, model) for arrival in arrivals]
        )
        if metrics is not None:
            self.metrics[round] = metrics
        return (model if arrays is None else _like(to_arrays(arrays), model)), steps, 1

    def _message(self, arrival: Arrival, model: Arrays) -> Message:
        said = arrival.update.metrics
        count = 1.0 if self.examples == "equal" else _count(said.get(self._key, 1))
        metrics = MetricRecord({**said, self._key: count})
        content = RecordDict({"arrays": to_record(moved(arrival, model)), "metrics": metrics})
        return Message(content, dst_node_id=0, message_type=MessageType.TRAIN)

    def served(self, model: Arrays) -> Arrays:
        """Return the newest model."""
        return model

    def memory(self) -> Arrays:
        """Return the arrays and numbers the strategy holds."""
        found: Arrays = {}
        for name, value in vars(self.strategy).items():
            if isinstance(value, dict):
                arrays = {key: part for key, part in value.items() if _is_array(part)}
                found |= {f"{name}/{key}": np.asarray(part) for key, part in arrays.items()}
            elif isinstance(value, list) and all(map(_is_array, value)):
                found |= {f"{name}{_LIST}/{at:08d}": np.asarray(a) for at, a in enumerate(value)}
            elif isinstance(value, ArrayRecord):
                items = enumerate(to_arrays(value).items())
                found |= {f"{name}{_RECORD}/{at:08d}/{key}": a for at, (key, a) in items}
            elif _is_array(value) or type(value) in (float, int):
                found[name] = np.asarray(value)
        return found

    def restore(self, memory: Arrays) -> None:
        """Give the strategy back what it held."""
        inside: dict[str, Arrays] = {}
        for name, value in sorted(memory.items()):  # files keep names, not their order
            owner, slash, key = name.partition("/")
            if slash:
                inside.setdefault(owner, {})[key] = value
            else:
                present = getattr(self.strategy, owner, None)
                is_number = value.ndim == 0 and not isinstance(present, np.ndarray)
                setattr(self.strategy, owner, value.item() if is_number else value)
        for owner, parts in inside.items():
            name = owner.removesuffix(_LIST).removesuffix(_RECORD)
            held: object
            if owner.endswith(_LIST):
                held = list(parts.values())
            elif owner.endswith(_RECORD):
                held = to_record({key.partition("/")[2]: array for key, array in parts.items()})
            else:
                held = {**(getattr(self.strategy, name, None) or {}), **parts}
            setattr(self.strategy, name, held)


_LEAST = ("min_available_nodes", "min_train_nodes")
_LIST, _RECORD = "[]", "{}"  # what an attribute was, after its name; nothing for a dict


def _is_array(value: object) -> bool:
    """Whether this is an array of numbers, or the scalar numpy computes from 0-d arrays."""
    return isinstance(value, np.ndarray | np.number) and value.dtype.kind in "biufc"


def moved(arrival: Arrival, model: Arrays) -> Arrays:
    """Return the client's model as if it had begun from the present one.

    Integers move as weights do: taken as it is, the counter of a stale client would turn that of
    the server back. Truth values are taken as they are. Half precision becomes single precision,
    because a strategy computes in the type it is given.
    """
    trained = {name: widened(arrival.update.arrays[name]) for name in model}
    if arrival.staleness == 0:
        return trained
    return {
        name: trained[name]
        if present.dtype.kind == "b"
        else np.asarray(widened(present) + (trained[name] - widened(arrival.start[name])))
        for name, present in model.items()
    }


def _like(arrays: Arrays, model: Arrays) -> Arrays:
    """Return what a strategy made, in the order and the types of the model.

    A mean of integers is rounded to the nearest one, and truth values are decided by majority.
    """
    if set(arrays) != set(model):
        raise ParameterError("the strategy must return the arrays of the model")
    found: Arrays = {}
    for name, like in model.items():
        made = arrays[name]
        if made.shape != like.shape:
            raise ParameterError(
                f"the strategy must return {name!r} with the shape {like.shape}, got {made.shape}"
            )
        if like.dtype.kind in "biu" and made.dtype.kind == "f":
            made = np.rint(made)
        if like.dtype.kind in "iu":
            made = np.clip(made, np.iinfo(like.dtype).min, np.iinfo(like.dtype).max)
        found[name] = np.asarray(made, like.dtype)
    return found


def _count(value: object) -> float:
    """Return a reported number of examples; nonsense counts as one."""
    try:
        number = float(cast(float, value))
    except (TypeError, ValueError):
        return 1.0
    return number if 0 < number < math.inf else 1.0
