"""Gradients on CPUs, protected from a defect of oneDNN, the library torch convolves with.

The backward pass of a strided 1×1 convolution writes past a buffer when images lie channels-last
and have fewer channels than a vector register holds numbers: 8 with AVX2, 16 with AVX-512
(https://github.com/uxlfoundation/oneDNN/issues/6035, open; oneDNN 3.12 has it). The process then
crashes, or the gradients are wrong without a message. In a transposed convolution the number of
outputs decides. Images in torch's plain layout are safe, as are float64, which oneDNN does not
compute, and everything on GPUs.

A layer, a function or `torch.func.vmap` may convolve, and a path, a kernel or a user's module may
lay images channels-last. Hence the backward passes themselves are watched, in torch's dispatcher.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

_BACKWARD = torch.ops.aten.convolution_backward.default
_REGISTER = 16  # float32 numbers in the widest vector register of any x86 CPU


def at_risk(module: nn.Module, shape: tuple[int, ...]) -> bool:
    """Whether a module computes a convolution that oneDNN may differentiate wrongly.

    It is tried on two blank images, because a convolution need not be a layer.
    """
    tried = copy.deepcopy(module).train()
    parameters = list(tried.parameters())
    if parameters[0].device.type != "cpu":
        return False
    guard = PlainImages()
    with guard:
        scores = tried(torch.zeros(2, *shape, dtype=parameters[0].dtype))
        torch.autograd.grad(scores.sum(), parameters, allow_unused=True)
    return guard.needed


def differentiate(
    loss: torch.Tensor, parameters: Sequence[torch.Tensor], guarded: bool
) -> tuple[torch.Tensor, ...]:
    """Return the gradients of a loss; zeros for parameters it does not depend on.

    ``guarded`` is for models `at_risk`: watching costs some microseconds per operation, too much
    for small models that do not need it.
    """
    with PlainImages() if guarded else nullcontext():
        return torch.autograd.grad(loss, parameters, materialize_grads=True)


class Uncompiled(TorchDispatchMode):
    """A mode that never meets torch's compiler."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch does not annotate it

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would import its compiler, which takes seconds, to keep out of here


class PlainImages(Uncompiled):
    """Puts images into the plain layout before a convolution at risk is differentiated."""

    needed = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is _BACKWARD:
            upstream, images, kernel, biases, stride, *others = args
            if _is_at_risk(images, kernel, stride):
                self.needed = True
                args = (upstream, _plain(images), _plain(kernel), biases, stride, *others)
        return func(*args, **(kwargs or {}))


def _is_at_risk(images: torch.Tensor, kernel: torch.Tensor, stride: Sequence[int]) -> bool:
    """Whether a convolution is strided, pointwise, of few channels, and computed by oneDNN."""
    return (
        images.device.type == "cpu"
        and images.dtype != torch.float64
        and kernel.ndim == 4
        and tuple(kernel.shape[2:]) == (1, 1)
        and max(stride) > 1
        and kernel.shape[1] < _REGISTER  # inputs, or outputs of a transposed convolution
    )


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in torch's plain layout: itself if it lies so already."""
    # `Tensor.contiguous` would not do: with one channel, strides of channels-last count as
    # contiguous, and torch passes them on as channels-last.
    if tensor.stride() == torch.empty(tensor.shape, device="meta").stride():
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)
