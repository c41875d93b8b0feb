"""What the clients learn from: data sets by name, or the user's own tensors.

A new set is one file with a class that loads it, decorated with ``@register("my-set")``; tensors,
arrays and data sets of other libraries need no registration, see `Dataset.of` and
`Dataset.of_samples`. No pickle is ever read.
"""

from freshband.federated.data.base import Dataset, DataSource, load_dataset, register, registry
from freshband.federated.data.cifar import Cifar10, Cifar100
from freshband.federated.data.digits import Digits
from freshband.federated.data.samples import Samples
from freshband.federated.data.sayings import Sayings
from freshband.federated.data.synthetic import Synthetic

__all__ = [
    "Cifar10",
    "Cifar100",
    "DataSource",
    "Dataset",
    "Digits",
    "Samples",
    "Sayings",
    "Synthetic",
    "load_dataset",
    "register",
    "registry",
]
