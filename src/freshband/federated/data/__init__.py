"""What the clients learn from: data sets by name, or the user's own tensors.

A new set is one file with a class that loads it, decorated with ``@register("my-set")``; tensors or
arrays need no registration, see `Dataset.of`. No pickle is ever read.
"""

from freshband.federated.data.base import Dataset, DataSource, load_dataset, register, registry
from freshband.federated.data.cifar import Cifar10, Cifar100
from freshband.federated.data.digits import Digits
from freshband.federated.data.synthetic import Synthetic

__all__ = [
    "Cifar10",
    "Cifar100",
    "DataSource",
    "Dataset",
    "Digits",
    "Synthetic",
    "load_dataset",
    "register",
    "registry",
]
