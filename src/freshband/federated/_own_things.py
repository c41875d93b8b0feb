"""What a user may hand over in place of what the settings name, and what is said of the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict, Unpack

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

from freshband.channels.base import ChannelModel
from freshband.errors import ParameterError, nearest, shown
from freshband.federated.algorithms import Rule
from freshband.federated.data.base import Dataset
from freshband.federated.losses import Loss, build_loss
from freshband.federated.metrics import Metric, build_metric
from freshband.federated.models.base import ModelSpec
from freshband.federated.optimisers import Optimiser, OptimiserSpec, build_optimiser
from freshband.federated.partition.base import Partition, divide_samples
from freshband.federated.settings import Training


class OwnThings(TypedDict, total=False):
    """What a user may give in place of what the settings name."""

    dataset: Any  # a `Dataset`, or training and test samples as `Dataset.of_samples` takes them
    model: nn.Module | ModelSpec | None
    channels: ChannelModel | None
    partition: Any  # a `Partition`, a list of samples by client, or the client of each sample
    algorithm: Rule | None
    loss: Loss | None
    optimiser: OptimiserSpec | Optimiser | type[torch.optim.Optimizer] | None
    metric: Metric | None


def given_things(**own: Unpack[OwnThings]) -> dict[str, Any]:
    _refuse_unknown(own.keys() - OwnThings.__annotations__.keys())
    given: dict[str, Any] = {name: value for name, value in own.items() if value is not None}
    if _two_parts(given.get("dataset")) is not None:
        given["dataset"] = read_dataset(given["dataset"])
    return given


def _refuse_unknown(names: Iterable[str]) -> None:
    for name in sorted(names):
        known = [*OwnThings.__annotations__]
        raise TypeError(f"unexpected argument {name!r}; {nearest(name, known)}")


def check_settings(settings: object) -> Training:
    """Return settings, or raise a `ParameterError` that says how to make some."""
    if not isinstance(settings, Training):
        example = "**settings" if isinstance(settings, Mapping) else "clients=10, rounds=60"
        raise ParameterError(
            f"settings must be a Training, got {shown(settings)}; make one with Training({example})"
        )
    return settings


def check_own_things(
    *,
    dataset: object = None,
    channels: object = None,
    partition: Any = None,
    algorithm: object = None,
    clients: object = None,
    alter_update: object = None,
    loss: Any = None,
    optimiser: Any = None,
    metric: Any = None,
    **unknown: object,
) -> None:
    """Refuse what a `Federation` cannot use; a model is checked where it is built."""
    _refuse_unknown(unknown)
    if not isinstance(dataset, Dataset | None) and _two_parts(dataset) is None:
        wanted = "a Dataset, or training and test samples as a pair"
        raise _refusal("dataset", wanted, dataset, _how_to_make_a_dataset(dataset))
    if channels is not None and (
        not isinstance(channels, ChannelModel) or isinstance(channels, type)
    ):
        hint = "make one with, for example, Stationary(means=[0.9, 0.2])"
        raise _refusal("channels", "a channel model", channels, hint)
    lists = isinstance(partition, np.ndarray | torch.Tensor | list | tuple | Mapping)
    if not isinstance(partition, Partition | None) and not (lists and len(partition)):
        hint = "make one with Partition(train=held, val=[[]] * len(held)), where held is a list of "
        raise _refusal(
            "partition", "a Partition, the samples of each client, or the client of each sample",
            partition, hint + "the samples of each client",
        )  # fmt: skip
    if not isinstance(algorithm, Rule | None):
        hint = "make one with, for example, FedBuff(buffer_size=5)"
        raise _refusal("algorithm", "a Rule", algorithm, hint)
    if clients is not None and (isinstance(clients, type) or not hasattr(clients, "examine")):
        hint = "their number is a setting, Training(clients=...)"
        raise _refusal("clients", "those of another Federation", clients, hint)
    if alter_update is not None and not callable(alter_update):
        raise ParameterError(
            "alter_update must be a function of round, client and update, got "
            f"{shown(alter_update)}"
        )
    for name, thing, build in (
        ("loss", loss, build_loss),
        ("optimiser", optimiser, build_optimiser),
        ("metric", metric, build_metric),
    ):
        if isinstance(thing, str):
            raise _refusal(name, "an object or a function", thing, "")
        if thing is not None:
            build(thing)


def read_dataset(given: Any) -> Dataset | None:
    """Return the data set that a user gave, perhaps as training and test samples."""
    if given is None or isinstance(given, Dataset):
        return given
    return Dataset.of_samples(*(_two_parts(given) or ()))


def _two_parts(given: Any) -> tuple[Any, Any] | None:
    """Return training and test samples, if that is what is given."""
    if isinstance(given, Mapping) and {"train", "test"} <= given.keys():
        return given["train"], given["test"]
    if isinstance(given, tuple | list) and len(given) == 2:
        return given[0], given[1]
    return None


def read_partition(given: Any, dataset: Dataset, settings: Training) -> Partition | None:
    """Return the partition that a user gave, perhaps as lists or as a column."""
    if given is None or isinstance(given, Partition):
        return given
    held = list(given.values()) if isinstance(given, Mapping) else given
    if np.ndim(held[0]) == 0:
        users = np.asarray(held)
        if users.shape != (dataset.n_train,):
            raise ParameterError(
                f"partition must have the client of each of the {dataset.n_train} training "
                f"samples, got {len(users)}"
            )
        held = [np.flatnonzero(users == user) for user in np.unique(users)]
    if len(held) != settings.clients:
        raise ParameterError(
            f"partition must have {settings.clients} clients, got {len(held)}: "
            f"Training(clients={len(held)})"
        )
    return divide_samples(
        held, val_fraction=settings.val_fraction, seed=settings.seed, run=settings.run
    )


def _refusal(name: str, wanted: str, value: object, hint: str) -> ParameterError:
    if isinstance(value, str) and name != "clients":
        hint = f"a name goes into the settings, Training({name}={shown(value)})"
    return ParameterError(f"{name} must be {wanted}, got {shown(value)}; {hint}")


def _how_to_make_a_dataset(value: object) -> str:
    if isinstance(value, TensorDataset):
        return "make one with Dataset.of(*train.tensors, *test.tensors)"
    if isinstance(value, Mapping) and value:
        return f"of a mapping 'train' and 'test' are used, it has {shown(list(value))}"
    if isinstance(value, torch.utils.data.Dataset) or hasattr(value, "column_names"):
        return "make one with Dataset.of_samples(train, test)"
    return (
        "make one from tensors or arrays with "
        "Dataset.of(train_images, train_labels, test_images, test_labels)"
    )
