"""Dense layers only."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated, final

from pydantic import Field
from torch import nn

from freshband.federated.models.base import _initialise, _Shape, register
from freshband.parameters import Parameters

__all__ = ["Mlp"]


@final
@register("mlp")
class Mlp(Parameters):
    """Pixels in a row, dense layers with ReLU between them.

    Parameters
    ----------
    hidden : list of int >= 1, default (64,)
        Widths of the hidden layers; none makes it a linear classifier.

    Examples
    --------
    >>> from freshband.federated.models import build_model
    >>> model = build_model("mlp", (1, 8, 8), 10, seed=0, hidden=[32, 32])
    >>> [layer.out_features for layer in model if hasattr(layer, "out_features")]
    [32, 32, 10]
    """

    hidden: tuple[Annotated[int, Field(ge=1)], ...] = (64,)

    def build(self, shape: _Shape, n_classes: int) -> nn.Module:
        """Build the module; see `ModelSpec.build`."""
        layers: list[nn.Module] = [nn.Flatten()]
        for inputs, outputs in pairwise((math.prod(shape), *self.hidden, n_classes)):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        return _initialise(nn.Sequential(*layers[:-1]))  # scores go through no ReLU
