"""What the clients learn from: data sets by name, or anybody's own tensors.

Examples
--------
>>> from freshband.federated.data import load_dataset
>>> digits = load_dataset("digits")
>>> digits.train_images.shape, digits.train_images.dtype
(torch.Size([1438, 1, 8, 8]), torch.uint8)

Tensors or arrays of your own need no registration:

>>> import numpy as np
>>> from freshband.federated.data import Dataset
>>> images, labels = np.ones((6, 1, 2, 2), np.float32), [0, 1, 2, 0, 1, 2]
>>> mine = Dataset.of(images, labels, images, labels)
>>> mine.shape, mine.n_classes
((1, 2, 2), 3)

A set worth a name is one file with a class that loads it, decorated with ``@register("my-set")``.
No pickle is ever read.
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
