"""What the clients train: models by name, or anybody's own `torch.nn.Module`.

Examples
--------
>>> from freshband.federated.models import build_model
>>> model = build_model("small-cnn", shape=(1, 8, 8), n_classes=10, seed=0)
>>> sum(weights.numel() for weights in model.parameters())
3818

A module of your own needs no registration; it is checked and returned as it is:

>>> import torch
>>> mine = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
>>> build_model(mine, shape=(1, 8, 8), n_classes=10) is mine
True
"""

from freshband.federated.models.base import ModelSpec, build_model, register, registry
from freshband.federated.models.cnn8 import Cnn8
from freshband.federated.models.mlp import Mlp
from freshband.federated.models.resnet18 import ResNet18
from freshband.federated.models.small_cnn import SmallCnn

__all__ = [
    "Cnn8",
    "Mlp",
    "ModelSpec",
    "ResNet18",
    "SmallCnn",
    "build_model",
    "register",
    "registry",
]
