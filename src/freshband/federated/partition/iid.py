"""Equal shares drawn at random: clients that do not differ."""

from __future__ import annotations

from typing import final

import numpy as np

from freshband.federated.partition.base import _Indices, register
from freshband.parameters import Parameters


@final
@register("iid")
class Iid(Parameters):
    """Every client gets the same number of samples, drawn without looking at labels.

    Where the number does not divide, the first clients have one more.

    Examples
    --------
    >>> from freshband.federated.partition import split_samples
    >>> split_samples([0] * 11, n_clients=2, scheme="iid", val_fraction=0).sizes
    array([6, 5])
    """

    def split(self, labels: _Indices, n_clients: int, rng: np.random.Generator) -> list[_Indices]:
        """Deal the samples; see `Scheme.split`."""
        return np.array_split(rng.permutation(len(labels)), n_clients)
