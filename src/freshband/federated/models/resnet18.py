"""The paper's model for CIFAR-100: ResNet-18 with a stem for small images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, final

import torch
from pydantic import Field, model_validator
from torch import nn

from freshband.errors import ParameterError
from freshband.federated.models.base import _initialise, _room_to_pool, _Shape, register
from freshband.parameters import Parameters


@final
@register("resnet18")
class ResNet18(Parameters):
    """ResNet-18 for images of 32×32 pixels, with GroupNorm.

    A 3×3 convolution of stride 1 in place of the 7×7 one and the pooling of ImageNet's stem, four
    stages of two residual blocks with widths w, 2w, 4w, 8w, each stage after the first halving the
    sides, then the mean over pixels and a dense layer.

    GroupNorm keeps no state, so parameters are all there is to send; the page *Data and models*
    says why that is the default. With ``norm="batch"`` the setting ``statistics`` says what becomes
    of the running statistics.

    Parameters
    ----------
    width : int >= 1, default 64
        Channels w of the first stage.
    norm : {"group", "batch"}, default "group"
        The kind of normalisation layer.
    groups : int >= 1, default 2
        Groups of channels that GroupNorm normalises together; must divide ``width``.

    Notes
    -----
    The last norm of every block starts with zero gain (Goyal et al. 2017).

    Examples
    --------
    >>> from freshband.federated.models import build_model
    >>> model = build_model("resnet18", (3, 32, 32), 100, seed=0, width=8)
    >>> sum(weights.numel() for weights in model.parameters())
    182252

    References
    ----------
    K. He et al., "Deep residual learning for image recognition", CVPR 2016.
    """

    width: Annotated[int, Field(ge=1)] = 64
    norm: Literal["group", "batch"] = "group"
    groups: Annotated[int, Field(ge=1)] = 2

    @model_validator(mode="after")
    def _agree(self) -> ResNet18:
        if self.norm == "group" and self.width % self.groups:
            raise ParameterError(f"groups must divide width = {self.width}, got {self.groups}")
        return self

    def build(self, shape: _Shape, n_classes: int) -> nn.Module:
        """Build the module; see `ModelSpec.build`."""
        _room_to_pool("resnet18", shape, 3)
        layers: list[nn.Module] = [
            nn.Conv2d(shape[0], self.width, 3, padding=1, bias=False),
            self._norm(self.width),
            nn.ReLU(),
        ]
        inputs = self.width
        for stage in range(4):
            outputs = self.width * 2**stage
            for stride in (1 if stage == 0 else 2, 1):
                layers.append(_BasicBlock(inputs, outputs, stride, self._norm))
                inputs = outputs
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, n_classes)]
        return _initialise(nn.Sequential(*layers))

    def _norm(self, channels: int) -> nn.Module:
        if self.norm == "batch":
            return nn.BatchNorm2d(channels)
        return nn.GroupNorm(self.groups, channels)


@final
class _BasicBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut around them: `ReLU(body(x) + shortcut(x))`.

    The shortcut is a strided 1×1 convolution where the shape changes, and the identity elsewhere.
    """

    def __init__(
        self, inputs: int, outputs: int, stride: int, norm: Callable[[int], nn.Module]
    ) -> None:
        super().__init__()
        last = norm(outputs)
        nn.init.zeros_(last.get_parameter("weight"))
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            norm(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            last,
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), norm(outputs)
            )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the block's output, shape (batch, outputs, height / stride, width / stride)."""
        added: torch.Tensor = self.body(images) + self.shortcut(images)
        return added.relu()
