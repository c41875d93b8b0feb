"""The paper's model for CIFAR-10: eight layers with 3×3 convolutions."""

from __future__ import annotations

from typing import Annotated, final

from pydantic import Field, model_validator
from torch import nn

from freshband.errors import ParameterError
from freshband.federated.models.base import _initialise, _room_to_pool, _Shape, register
from freshband.parameters import Parameters


@final
@register("cnn8")
class Cnn8(Parameters):
    """Six 3×3 convolutions in three stages of two, then two dense layers.

    A stage is convolution, ReLU, convolution, 2×2 max-pooling, ReLU, so the sides of 32×32 images
    go 32, 16, 8, 4. The second ReLU comes after the pooling, which gives the same result as the
    usual order for a quarter of the ReLU's work. There is no normalisation layer: with He's weights
    eight layers train without one.

    Parameters
    ----------
    widths : three int >= 1, default (32, 64, 128)
        Channels of the three stages.
    hidden : int >= 1, default 128
        Width of the first dense layer.

    Notes
    -----
    **Deviations.** The paper gives neither widths nor the split of its eight layers into
    convolutions and dense ones (E20).

    Examples
    --------
    >>> from freshband.federated.models import build_model
    >>> model = build_model("cnn8", (3, 32, 32), 10, seed=0)
    >>> sum(weights.numel() for weights in model.parameters())
    550570
    """

    widths: tuple[Annotated[int, Field(ge=1)], ...] = (32, 64, 128)
    hidden: Annotated[int, Field(ge=1)] = 128

    @model_validator(mode="after")
    def _agree(self) -> Cnn8:
        if len(self.widths) != 3:
            raise ParameterError(f"widths must be three whole numbers >= 1, got {self.widths}")
        return self

    def build(self, shape: _Shape, n_classes: int) -> nn.Module:
        """Build the module; see `ModelSpec.build`."""
        height, width = _room_to_pool("cnn8", shape, 3)
        layers: list[nn.Module] = []
        inputs = shape[0]
        for outputs in self.widths:
            layers += [
                nn.Conv2d(inputs, outputs, 3, padding=1),
                nn.ReLU(inplace=True),
                nn.Conv2d(outputs, outputs, 3, padding=1),
                nn.MaxPool2d(2),
                nn.ReLU(inplace=True),
            ]
            inputs = outputs
        layers += [
            nn.Flatten(),
            nn.Linear(inputs * height * width, self.hidden),
            nn.ReLU(inplace=True),
            nn.Linear(self.hidden, n_classes),
        ]
        return _initialise(nn.Sequential(*layers))
