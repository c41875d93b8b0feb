"""What a user may hand over in place of what the settings name, and what is said of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

from freshband.channels.base import ChannelModel
from freshband.errors import ParameterError, shown
from freshband.federated.algorithms import Rule
from freshband.federated.data.base import Dataset
from freshband.federated.partition.base import Partition
from freshband.federated.settings import Training


class OwnThings(TypedDict, total=False):
    """What a user may give in place of what the settings name."""

    dataset: Dataset | None
    model: nn.Module | None
    channels: ChannelModel | None
    partition: Partition | None
    algorithm: Rule | None


def given_things(**own: Unpack[OwnThings]) -> dict[str, Any]:
    for name in own.keys() - OwnThings.__annotations__.keys():
        raise TypeError(f"unexpected argument {name!r}, not one of {[*OwnThings.__annotations__]}")
    return {name: value for name, value in own.items() if value is not None}


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
    partition: object = None,
    algorithm: object = None,
    clients: object = None,
    alter_update: object = None,
) -> None:
    """Refuse what a `Federation` cannot use; a model is checked where it is built."""
    if not isinstance(dataset, Dataset | None):
        raise _refusal("dataset", "a Dataset", dataset, _how_to_make_a_dataset(dataset))
    if channels is not None and (
        not isinstance(channels, ChannelModel) or isinstance(channels, type)
    ):
        hint = "make one with, for example, Stationary(means=[0.9, 0.2])"
        raise _refusal("channels", "a channel model", channels, hint)
    if not isinstance(partition, Partition | None):
        raise _refusal("partition", "a Partition", partition, _how_to_make_a_partition(partition))
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


def _refusal(name: str, wanted: str, value: object, hint: str) -> ParameterError:
    if isinstance(value, str) and name != "clients":
        hint = f"a name goes into the settings, Training({name}={shown(value)})"
    return ParameterError(f"{name} must be {wanted}, got {shown(value)}; {hint}")


def _how_to_make_a_dataset(value: object) -> str:
    if isinstance(value, TensorDataset):
        return "make one with Dataset.of(*train.tensors, *test.tensors)"
    return (
        "make one from tensors or arrays with "
        "Dataset.of(train_images, train_labels, test_images, test_labels)"
    )


def _how_to_make_a_partition(value: Any) -> str:
    held = "a list of the samples of each client"
    if isinstance(value, Mapping):
        held = "list(partition.values())"
    elif isinstance(value, np.ndarray | torch.Tensor | list | tuple) and _is_row(value):
        held = "[np.flatnonzero(np.asarray(ids) == user) for user in np.unique(ids)]"
    return f"make one with Partition(train=held, val=[[]] * len(held)), where held is {held}"


def _is_row(value: Any) -> bool:
    """Whether it is a row of single things, such as the user each sample belongs to."""
    return len(value) > 0 and np.ndim(value[0]) == 0
