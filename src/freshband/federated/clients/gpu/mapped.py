"""Any module, many clients at once: `torch.func.vmap` over rows of parameters, compiled.

Nothing here needs a GPU: `MappedModel` is algebra on rows, which `torch.compile` turns into few
kernels and `freshband.federated.clients.gpu.graphs` records.
"""

from __future__ import annotations

import logging
from typing import Any, final

import torch
from torch import nn

from freshband.federated.clients.base import Layout
from freshband.federated.data.base import Dataset

__all__ = ["MappedModel", "MatmulConv2d", "use_matmul_convolutions"]

_log = logging.getLogger(__name__)
_SHAPES = 4  # most batch sizes that are compiled, each of which takes up to a minute


@final
class MappedModel:
    """A module over K clients' parameters, shape (K, P), computed in one precision.

    ``dtype`` is what the module multiplies; rows stay in float32. Steps go through `torch.compile`
    where ``compiled``; where that fails they run uncompiled, and a warning says so.
    """

    def __init__(
        self,
        module: nn.Module,
        layout: Layout,
        dataset: Dataset,
        dtype: torch.dtype,
        *,
        compiled: bool = True,
        mode: str | None = None,
    ) -> None:
        self._module = module
        self._layout = layout
        self._dtype = dtype
        device = dataset.train_images.device
        self._mean = torch.tensor(dataset.mean, device=device).reshape(-1, 1, 1)
        self._std = torch.tensor(dataset.std, device=device).reshape(-1, 1, 1)
        self._gradients = torch.func.vmap(torch.func.grad(self._loss))
        self._compiled: Any = None
        if compiled:
            self._compiled = torch.compile(self._step, dynamic=False, fullgraph=True, mode=mode)
        self._shapes: set[torch.Size] = set()

    def step(
        self, rows: torch.Tensor, pictures: torch.Tensor, labels: torch.Tensor, lr: torch.Tensor
    ) -> None:
        """Descend once: change ``rows`` in place by each client's mean gradient over its pictures.

        ``pictures`` are K batches as the data set holds them, shape (K, B, channels, height,
        width), ``labels`` have the shape (K, B), and ``lr`` is a scalar.
        """
        self._module.train()
        if self._compiled is not None and len(self._shapes | {labels.shape}) <= _SHAPES:
            try:
                with torch._dynamo.config.patch(recompile_limit=1000):  # of all models together
                    self._compiled(rows, pictures, labels, lr)
            except Exception as error:  # the compiler's errors have no common base class
                self._compiled = None
                why = (str(error).strip() or type(error).__name__).partition("\n")[0]
                name = type(self._module).__name__
                _log.warning("%s cannot be compiled and trains more slowly: %s", name, why)
            else:
                self._shapes.add(labels.shape)
                return
        self._step(rows, pictures, labels, lr)

    def _step(
        self, rows: torch.Tensor, pictures: torch.Tensor, labels: torch.Tensor, lr: torch.Tensor
    ) -> None:
        gradients = self._gradients(self._parameters(rows), self._images(pictures), labels)
        with torch.no_grad():
            for name, view in self._layout.views(rows).items():
                view.sub_(gradients[name].to(torch.float32) * lr)

    def scores(self, rows: torch.Tensor, pictures: torch.Tensor) -> torch.Tensor:
        """Return float32 scores, shape (K, B, classes), of K batches of pictures."""
        self._module.eval()
        with torch.no_grad():
            mapped = torch.func.vmap(self._call)
            found: torch.Tensor = mapped(self._parameters(rows), self._images(pictures))
            return found

    def _parameters(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        views = self._layout.views(rows.detach())
        return {name: view.to(self._dtype) for name, view in views.items()}

    def _images(self, pictures: torch.Tensor) -> torch.Tensor:
        return ((pictures.to(torch.float32) - self._mean) / self._std).to(self._dtype)

    def _call(self, parameters: dict[str, torch.Tensor], images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = torch.func.functional_call(self._module, parameters, (images,))
        return scores.to(torch.float32)

    def _loss(
        self, parameters: dict[str, torch.Tensor], images: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        return nn.functional.cross_entropy(self._call(parameters, images), labels)


class MatmulConv2d(nn.Conv2d):
    """A convolution written as a matrix product of gathered pixels with the kernels.

    Mapped over clients it is one batched product. As a convolution it would be a grouped one, whose
    gradient of the weights cuDNN computes slowly.
    """

    pieces = 1  # of a batch, whose gradients are computed apart: more work for the GPU at a time

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return what `nn.Conv2d` returns, in channels-last order."""
        (high, wide), (down, right) = self.kernel_size, self.stride
        pad_y, pad_x = (int(side) for side in self.padding)
        if pad_y or pad_x:
            images = nn.functional.pad(images, (pad_x, pad_x, pad_y, pad_y))
        step_y, step_x = self.dilation
        height = (images.shape[-2] - step_y * (high - 1) - 1) // down + 1
        width = (images.shape[-1] - step_x * (wide - 1) - 1) // right + 1
        seen = [
            images[
                ...,
                y * step_y : y * step_y + down * (height - 1) + 1 : down,
                x * step_x : x * step_x + right * (width - 1) + 1 : right,
            ].movedim(-3, -1)
            for y in range(high)
            for x in range(wide)
        ]
        columns = torch.cat(seen, dim=-1) if len(seen) > 1 else seen[0]
        kernels = self.weight.permute(0, 2, 3, 1).reshape(self.out_channels, -1)
        odd = -kernels.shape[-1] % 8  # products of rows that are no multiple of 16 bytes are slow
        if odd:
            columns = nn.functional.pad(columns, (0, odd))
            kernels = nn.functional.pad(kernels, (0, odd))
        batch = columns.shape[0]
        pieces = self.pieces if batch % self.pieces == 0 else 1
        if pieces > 1:
            columns = columns.reshape(pieces, -1, columns.shape[-1])
            found = torch.bmm(columns, kernels.t().expand(pieces, *kernels.t().shape))
        else:
            found = columns.reshape(-1, columns.shape[-1]) @ kernels.t()
        found = found.reshape(batch, height, width, self.out_channels)
        if self.bias is not None:
            found = found + self.bias
        return found.movedim(-1, -3)


def use_matmul_convolutions(module: nn.Module, clients: int | None = None) -> None:
    """Turn the plain convolutions of a module into `MatmulConv2d`, in place."""
    for part in module.modules():
        if (
            type(part) is nn.Conv2d
            and part.groups == 1
            and part.padding_mode == "zeros"
            and not isinstance(part.padding, str)
        ):
            part.__class__ = MatmulConv2d
            if clients:
                numbers = part.weight[0].numel()
                tiles = -(-numbers // 128) * -(-part.out_channels // 128)
                pieces = 1
                while pieces < 32 and 2 * pieces * clients * tiles <= 264:
                    pieces *= 2
                part.pieces = pieces  # type: ignore[attr-defined]
