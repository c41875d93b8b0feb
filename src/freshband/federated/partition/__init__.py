"""Who holds which samples: splits of a training set over the clients, by name or by class.

Examples
--------
>>> import numpy as np
>>> from freshband.federated.partition import split_samples
>>> labels = np.arange(600) % 3
>>> clients = split_samples(labels, n_clients=4, scheme="dirichlet", alpha=0.5, seed=0)
>>> clients.counts(labels)
array([[ 15,  33, 144],
       [  1,  63,   3],
       [  1,   1,  40],
       [183, 103,  13]])

A split of your own is one class with ``split(labels, n_clients, rng)``, in any file; or make a
`Partition` from lists of indices directly.
"""

from freshband.federated.partition.base import (
    Partition,
    Scheme,
    register,
    registry,
    split_samples,
)
from freshband.federated.partition.dirichlet import Dirichlet
from freshband.federated.partition.iid import Iid
from freshband.federated.partition.shards import Shards

__all__ = [
    "Dirichlet",
    "Iid",
    "Partition",
    "Scheme",
    "Shards",
    "register",
    "registry",
    "split_samples",
]
