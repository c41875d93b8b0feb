"""Few classes per client: the sorted set cut into shards."""

from __future__ import annotations

from typing import Annotated, final

import numpy as np
from pydantic import Field

from freshband.errors import ParameterError
from freshband.federated.partition.base import _Indices, register
from freshband.parameters import Parameters


@final
@register("shards")
class Shards(Parameters):
    """Sort by label, cut into equal shards, deal each client some of them at random.

    With two shards a client sees about two classes, the hardest split in common use: sizes are
    equal, labels are not.

    Parameters
    ----------
    shards_per_client : int >= 1, default 2
        Shards each client gets; there are n_clients × shards_per_client, whose sizes differ by
        one at most.

    Examples
    --------
    >>> from freshband.federated.partition import split_samples
    >>> labels = [0] * 40 + [1] * 40
    >>> split_samples(labels, n_clients=4, scheme="shards", shards_per_client=1).counts(labels)
    array([[ 0, 20],
           [ 0, 20],
           [20,  0],
           [20,  0]])

    References
    ----------
    B. McMahan et al., "Communication-efficient learning of deep networks from decentralized
    data", AISTATS 2017, Sec. 3.
    """

    shards_per_client: Annotated[int, Field(ge=1)] = 2

    def split(self, labels: _Indices, n_clients: int, rng: np.random.Generator) -> list[_Indices]:
        """Deal the samples; see `Scheme.split`."""
        n_shards = n_clients * self.shards_per_client
        if n_shards > len(labels):
            raise ParameterError(
                f"shards_per_client must be at most {len(labels) // n_clients} for {n_clients} "
                f"clients and {len(labels)} samples, got {self.shards_per_client}"
            )
        order = rng.permutation(len(labels))  # so that samples of a class come in no order
        order = order[np.argsort(labels[order], kind="stable")]
        shards = np.array_split(order, n_shards)
        dealt = rng.permutation(n_shards).reshape(n_clients, self.shards_per_client)
        return [np.concatenate([shards[shard] for shard in mine]) for mine in dealt]
