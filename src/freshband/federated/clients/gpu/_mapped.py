"""Any module, many clients at once: `torch.func.vmap` over rows of parameters, compiled.

Nothing here needs a GPU: `MappedModel` is algebra on rows, which `torch.compile` turns into few
kernels and `freshband.federated.clients.gpu.graphs` records.
"""

from __future__ import annotations

import logging
from typing import Any, final

import torch
from torch import nn

from freshband.federated.clients._base import ParameterLayout
from freshband.federated.clients.gpu._layers import Arena
from freshband.federated.data.base import Dataset

_log = logging.getLogger(__name__)
_SIZES = 4  # most batch sizes that are compiled, each of which takes up to two minutes
_TILES = 264  # of a product that keep the GPU busy: two for each multiprocessor of an H200


@final
class MappedModel:
    """A module over ``clients`` rows of parameters, computed in one precision.

    ``dtype`` is what the module multiplies; rows stay in float32. Steps go through `torch.compile`;
    where that fails they run uncompiled, and a warning says so.
    """

    width = 0  # of the arena's `low`, which is not needed

    def __init__(
        self,
        module: nn.Module,
        layout: ParameterLayout,
        dataset: Dataset,
        dtype: torch.dtype,
        clients: int,
        *,
        compiled: bool = True,
    ) -> None:
        for part in module.modules():
            if _is_plain(part):
                part.__class__ = _ProductConv2d
                assert isinstance(part, _ProductConv2d)
                part.clients = clients
        self._module = module
        self._layout = layout
        self._dtype = dtype
        device = dataset.train_images.device
        self._mean = torch.tensor(dataset.mean, device=device).reshape(-1, 1, 1)
        self._std = torch.tensor(dataset.std, device=device).reshape(-1, 1, 1)
        self._gradients = torch.func.vmap(torch.func.grad(self._loss))
        self._compiled: Any = None
        if compiled:
            self._compiled = torch.compile(self._step, dynamic=False, fullgraph=True)
        self._sizes: set[int] = set()

    def train(
        self, arena: Arena, images: torch.Tensor, labels: torch.Tensor, samples: torch.Tensor
    ) -> None:
        """Take the steps of samples of the shape (clients, steps, images) with the arena's rows."""
        self._module.train()
        for some in samples.unbind(dim=1):
            self._descend(arena.rows, images[some], labels[some], arena.lr)

    def score(self, arena: Arena, images: torch.Tensor, samples: torch.Tensor) -> torch.Tensor:
        """Return float32 scores, shape (clients, images, classes), of the samples of step 0."""
        self._module.eval()
        with torch.no_grad():
            parameters = self._parameters(arena.rows)
            # vmap asks norms for their inputs' order, and cannot tell channels-last
            parameters = {name: value.contiguous() for name, value in parameters.items()}
            some = self._images(images[samples[:, 0]])
            found: torch.Tensor = torch.func.vmap(self._call)(parameters, some)
            return found

    def _descend(self, *step: torch.Tensor) -> None:
        """Take a step, compiled if that can be done."""
        sizes = self._sizes | {step[2].shape[1]}
        if self._compiled is not None and len(sizes) <= _SIZES:
            try:
                with torch._dynamo.config.patch(recompile_limit=1000):  # of all models together
                    self._compiled(*step)
            except Exception as error:  # the compiler's errors have no common base class
                self._compiled = None
                why = (str(error).strip() or type(error).__name__).partition("\n")[0]
                name = type(self._module).__name__
                _log.warning("%s cannot be compiled and trains more slowly: %s", name, why)
            else:
                self._sizes = sizes
                return
        self._step(*step)

    def _step(
        self, rows: torch.Tensor, pictures: torch.Tensor, labels: torch.Tensor, lr: torch.Tensor
    ) -> None:
        gradients = self._gradients(self._parameters(rows), self._images(pictures), labels)
        with torch.no_grad():
            for name, view in self._layout.views(rows).items():
                view.sub_(gradients[name].to(torch.float32) * lr)

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


def _is_plain(part: nn.Module) -> bool:
    return (
        type(part) is nn.Conv2d
        and part.groups == 1
        and part.padding_mode == "zeros"
        and not isinstance(part.padding, str)
    )


class _ProductConv2d(nn.Conv2d):
    """A convolution that trains as a matrix product of the pixels under each kernel.

    Mapped over clients, that is one batched product. A convolution would become a grouped one,
    whose weights' gradients cuDNN computes so slowly that they take half of ResNet-18's time.
    Outside training it is a convolution, which takes less memory.
    """

    clients: int

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return super().forward(images)
        columns = self._columns(images)
        kernels = self.weight.permute(0, 2, 3, 1).reshape(self.out_channels, -1)
        missing = -kernels.shape[-1] % 8  # rows of products should be multiples of 16 bytes
        if missing:
            columns = nn.functional.pad(columns, (0, missing))
            kernels = nn.functional.pad(kernels, (0, missing))
        batch, height, width, numbers = columns.shape
        pieces = self._pieces(batch, numbers)
        if pieces > 1:
            columns = columns.reshape(pieces, -1, numbers)
            found = torch.bmm(columns, kernels.t().expand(pieces, -1, -1))
        else:
            found = columns.reshape(-1, numbers) @ kernels.t()
        found = found.reshape(batch, height, width, self.out_channels)
        if self.bias is not None:
            found = found + self.bias
        return found.movedim(-1, -3)

    def _columns(self, images: torch.Tensor) -> torch.Tensor:
        """Return the pixels under the kernel at every place, shape (batch, height, width, …)."""
        pad_y, pad_x = (int(side) for side in self.padding)
        if pad_y or pad_x:
            images = nn.functional.pad(images, (pad_x, pad_x, pad_y, pad_y))
        slices = []
        for axis, side in enumerate(self.kernel_size):
            apart, stride = self.dilation[axis], self.stride[axis]
            places = (images.shape[axis + 2] - apart * (side - 1) - 1) // stride
            starts = [apart * at for at in range(side)]
            slices.append([slice(at, at + stride * places + 1, stride) for at in starts])
        seen = [
            images[..., down, right].movedim(-3, -1) for down in slices[0] for right in slices[1]
        ]
        return torch.cat(seen, dim=-1)

    def _pieces(self, batch: int, numbers: int) -> int:
        """Return in how many pieces a batch is multiplied.

        The weights' gradients are products with few tiles but many rows: pieces of a batch, whose
        gradients are added up, keep the GPU busy.
        """
        tiles = self.clients * -(-numbers // 128) * -(-self.out_channels // 128)
        pieces = 1
        while pieces < 32 and 2 * pieces * tiles <= _TILES and batch % (2 * pieces) == 0:
            pieces *= 2
        return pieces
