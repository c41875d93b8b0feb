"""How updates make a new model over Flower: by freshband's own rules, or any Flower strategy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from freshband.errors import ParameterError
from freshband.federated.settings import Training
from freshband.flower._wire import Arrays, to_arrays, to_record


class PaperAggregation:
    """The server rule that the settings name, the same as in ``freshband train``."""

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
    """Any Flower strategy's aggregation: FedAvg, FedAdam, Krum or the user's own.

    The strategy configures training and aggregates as usual. freshband decides who trains and
    whose update counts, so the strategy's sampling (``fraction_train``) has no effect.

    Parameters
    ----------
    strategy : flwr.serverapp.strategy.Strategy
        It receives the clients' models, each moved to the server's present model.
    examples : {"reported", "equal"}, default "reported"
        Whether the number of examples, a client's weight in an average, is what the client reports
        or the same for all. A client that lies gains weight: choose ``"equal"`` where clients are
        not trusted.
    config : mapping, optional
        Configuration to send to the clients.

    Notes
    -----
    Attributes of the strategy that are arrays, numbers, or dicts, lists or ArrayRecords of arrays
    (momentum, second moments, counters) are saved in checkpoints.
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
        """Return what the strategy sends."""
        limits = ("min_available_nodes", "min_train_nodes")
        least = max(getattr(self.strategy, name, 0) for name in limits)
        known = list(grid.get_node_ids())
        if least > len(known):  # it would wait forever
            raise ParameterError(f"the strategy wants {least} nodes, there are {len(known)}")
        config = ConfigRecord(dict(self._config))
        made = list(self.strategy.configure_train(round, model, config, grid))
        if not made and nodes:
            raise ParameterError("the strategy must train: fraction_train is 0, it sends nothing")
        by_node = {message.metadata.dst_node_id: message.content for message in made}
        return {node: RecordDict(dict(by_node.get(node, made[0].content))) for node in nodes}

    def aggregate(
        self, round: int, model: Arrays, trained: Sequence[tuple[Arrays, Mapping[str, Any]]]
    ) -> Arrays:
        """Return the new model from the clients' models and the metrics they came with."""
        if not trained:
            return model
        replies = [self._reply(arrays, metrics) for arrays, metrics in trained]
        made, metrics = self.strategy.aggregate_train(round, replies)
        if metrics is not None:
            self.metrics[round] = metrics
        return model if made is None else _like(to_arrays(made), model)

    def _reply(self, arrays: Arrays, said: Mapping[str, Any]) -> Message:
        count = 1.0 if self.examples == "equal" else _count(said.get(self._key, 1))
        metrics = MetricRecord({**said, self._key: count})
        content = RecordDict({"arrays": to_record(arrays), "metrics": metrics})
        return Message(content, dst_node_id=0, message_type=MessageType.TRAIN)

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
        """Set the strategy's attributes again."""
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


_LIST, _RECORD = "[]", "{}"  # what an attribute was, after its name; nothing for a dict


def _is_array(value: object) -> bool:
    """Whether this is an array of numbers, or a scalar, which numpy makes of 0-d arrays."""
    return isinstance(value, np.ndarray | np.number) and value.dtype.kind in "biufc"


def _like(arrays: Arrays, model: Arrays) -> Arrays:
    """Return a strategy's model in the order and types of ours; means of integers are rounded."""
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
        if name.endswith("running_var"):  # the change of a stale update may go below 0
            made = np.maximum(made, 0)
        found[name] = np.asarray(made, like.dtype)
    return found


def _count(value: object) -> float:
    """Return a reported number of examples; nonsense counts as one."""
    try:
        number = float(cast(float, value))
    except (TypeError, ValueError):
        return 1.0
    return number if 0 < number < math.inf else 1.0
