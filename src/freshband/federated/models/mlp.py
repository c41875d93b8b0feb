"""Dense layers only."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated, ClassVar, final

from pydantic import Field
from torch import nn

from freshband.federated.models.base import _AnyShape, _initialise, register
from freshband.parameters import Parameters


@final
@register("mlp")
class Mlp(Parameters):
    """Pixels or features in a row, dense layers with ReLU between them.

    It has one output where targets are numbers.

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

    any_shape: ClassVar[bool] = True

    hidden: tuple[Annotated[int, Field(ge=1)], ...] = (64,)

    def build(self, shape: _AnyShape, n_classes: int) -> nn.Module:
        """Build the module; see `ModelSpec.build`."""
        layers: list[nn.Module] = [nn.Flatten()]
        for inputs, outputs in pairwise((math.prod(shape), *self.hidden, n_classes or 1)):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        return _initialise(nn.Sequential(*layers[:-1]))  # scores go through no ReLU
