"""How clients make their steps: optimisers by name, or the user's own.

A new optimiser is one file with a class, decorated with ``@register("my-optimiser")``; a class of
``torch.optim``, or a function of a client's parameters, needs no registration.
"""

from freshband.federated.optimisers.adam import Adam
from freshband.federated.optimisers.base import (
    Optimiser,
    OptimiserSpec,
    Steps,
    build_optimiser,
    register,
    registry,
)
from freshband.federated.optimisers.sgd import Sgd

__all__ = [
    "Adam",
    "Optimiser",
    "OptimiserSpec",
    "Sgd",
    "Steps",
    "build_optimiser",
    "register",
    "registry",
]
