"""A CNN of a few thousand parameters, for images like the digits."""

from __future__ import annotations

from typing import Annotated, final

from pydantic import Field, model_validator
from torch import nn

from freshband.errors import ParameterError
from freshband.federated.models.base import _initialise, _room_to_pool, _Shape, register
from freshband.parameters import Parameters


@final
@register("small-cnn")
class SmallCnn(Parameters):
    """Two 3×3 convolutions, one 2×2 max-pooling before the second ReLU, one dense layer.

    Parameters
    ----------
    widths : two int >= 1, default (8, 16)
        Channels of the two convolutions.

    Examples
    --------
    >>> from freshband.federated.models import build_model
    >>> model = build_model("small-cnn", (1, 8, 8), 10, seed=0)
    >>> sum(weights.numel() for weights in model.parameters())
    3818
    """

    widths: tuple[Annotated[int, Field(ge=1)], ...] = (8, 16)

    @model_validator(mode="after")
    def _agree(self) -> SmallCnn:
        if len(self.widths) != 2:
            raise ParameterError(f"widths must be two whole numbers >= 1, got {self.widths}")
        return self

    def build(self, shape: _Shape, n_classes: int) -> nn.Module:
        """Build the module; see `ModelSpec.build`."""
        height, width = _room_to_pool("small-cnn", shape, 1)
        first, second = self.widths
        module = nn.Sequential(
            nn.Conv2d(shape[0], first, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(first, second, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(second * height * width, n_classes),
        )
        return _initialise(module)
