"""One step of many clients at once, for any module: `torch.func.vmap` over stacked parameters.

Nothing here knows of GPUs: `MappedModel` is plain algebra on rows, which `torch.compile` turns into
few kernels and `freshband.federated.clients.gpu.graphs` records.
"""

from __future__ import annotations

import logging
from typing import Any, final

import torch
from torch import nn

from freshband.federated.clients.base import Layout
from freshband.federated.data.base import Dataset

__all__ = ["MappedModel"]

_log = logging.getLogger(__name__)


@final
class MappedModel:
    """A module over K clients' parameters, shape (K, P), computed in one precision.

    Parameters
    ----------
    module : nn.Module
        The model, on the device to train on.
    layout : Layout
        How its parameters lie in a row.
    dataset : Dataset
        Whose images are normalised on the way in.
    dtype : torch.dtype
        What is multiplied; rows stay in float32.
    compiled : bool, default True
        Whether steps go through `torch.compile`; where that fails they run as they are, and a
        warning says so.
    """

    def __init__(
        self,
        module: nn.Module,
        layout: Layout,
        dataset: Dataset,
        dtype: torch.dtype,
        *,
        compiled: bool = True,
    ) -> None:
        self._module = module
        self._layout = layout
        self._dtype = dtype
        device = dataset.train_images.device
        self._mean = torch.tensor(dataset.mean, device=device).reshape(-1, 1, 1)
        self._std = torch.tensor(dataset.std, device=device).reshape(-1, 1, 1)
        self._gradients = torch.func.vmap(torch.func.grad(self._loss))
        self._compiled: Any = torch.compile(self._step, dynamic=False) if compiled else None

    def step(self, rows: torch.Tensor, pictures: Any, labels: Any, lr: torch.Tensor) -> None:
        """Descend once: change ``rows`` in place by each client's mean gradient over its pictures.

        Parameters
        ----------
        rows : float32 tensor, shape (K, P)
        pictures : tensor, shape (K, B, channels, height, width)
            As the data set holds them.
        labels : int64 tensor, shape (K, B)
        lr : float32 tensor, shape ()
        """
        if self._compiled is None:
            self._step(rows, pictures, labels, lr)
            return
        try:
            self._compiled(rows, pictures, labels, lr)
        except Exception as error:  # the compiler has no common one
            self._compiled = None
            why = (str(error).strip() or type(error).__name__).partition("\n")[0]
            name = type(self._module).__name__
            _log.warning("%s cannot be compiled and trains more slowly: %s", name, why)
            self._step(rows, pictures, labels, lr)

    def _step(self, rows: torch.Tensor, pictures: Any, labels: Any, lr: torch.Tensor) -> None:
        self._module.train()
        gradients = self._gradients(self._parameters(rows), self._images(pictures), labels)
        with torch.no_grad():
            for name, view in self._layout.views(rows).items():
                view.sub_(gradients[name].to(torch.float32) * lr)

    def scores(self, rows: torch.Tensor, pictures: torch.Tensor) -> torch.Tensor:
        """Return float32 scores, shape (K, B, classes), of pictures (K, B, ...) as kept."""
        self._module.eval()
        with torch.no_grad():
            mapped = torch.func.vmap(self._call)
            found: torch.Tensor = mapped(self._parameters(rows), self._images(pictures))
            return found

    def _parameters(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        views = self._layout.views(rows.detach())
        return {name: view.to(self._dtype).contiguous() for name, view in views.items()}

    def _images(self, pictures: torch.Tensor) -> torch.Tensor:
        return ((pictures.to(torch.float32) - self._mean) / self._std).to(self._dtype)

    def _call(self, parameters: dict[str, torch.Tensor], images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = torch.func.functional_call(self._module, parameters, (images,))
        return scores.to(torch.float32)

    def _loss(
        self, parameters: dict[str, torch.Tensor], images: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        return nn.functional.cross_entropy(self._call(parameters, images), labels)
