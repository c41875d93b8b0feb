"""What clients make smaller: losses by name, or the user's own function.

A new loss is one file with a class, decorated with ``@register("my-loss")``; a function of outputs
and targets needs no registration.
"""

from freshband.federated.losses.base import Loss, LossSpec, build_loss, register, registry
from freshband.federated.losses.cross_entropy import CrossEntropy
from freshband.federated.losses.huber import Huber
from freshband.federated.losses.mse import Mse

__all__ = [
    "CrossEntropy",
    "Huber",
    "Loss",
    "LossSpec",
    "Mse",
    "build_loss",
    "register",
    "registry",
]
