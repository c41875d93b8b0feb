"""Who holds which samples: splits of a training set over the clients, see `split_samples`.

A new split is one class with ``split(labels, n_clients, rng)`` in any file; a `Partition` can also
be made from lists of indices.
"""

from freshband.federated.partition.base import (
    Partition,
    Scheme,
    divide_samples,
    register,
    registry,
    split_samples,
)
from freshband.federated.partition.column import Column
from freshband.federated.partition.dirichlet import Dirichlet
from freshband.federated.partition.iid import Iid
from freshband.federated.partition.shards import Shards

__all__ = [
    "Column",
    "Dirichlet",
    "Iid",
    "Partition",
    "Scheme",
    "Shards",
    "divide_samples",
    "register",
    "registry",
    "split_samples",
]
