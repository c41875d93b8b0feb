"""What the clients train: models by name, or the user's own module; see `build_model`."""

from freshband.federated.models.base import ModelSpec, build_model, register, registry
from freshband.federated.models.char_gru import CharGru
from freshband.federated.models.cnn8 import Cnn8
from freshband.federated.models.mlp import Mlp
from freshband.federated.models.resnet18 import ResNet18
from freshband.federated.models.small_cnn import SmallCnn

__all__ = [
    "CharGru",
    "Cnn8",
    "Mlp",
    "ModelSpec",
    "ResNet18",
    "SmallCnn",
    "build_model",
    "register",
    "registry",
]
