"""Many clients' models as one: every layer of all clients in a few launches of one kernel.

`stack` turns a module into a `Stack` of the layers below if it knows all of its parts: 3×3 and 1×1
convolutions, ReLU, 2×2 max-pooling, GroupNorm, residual blocks, dense layers. Each layer goes
forward and back by itself and moves its own weights on the way back, once nobody needs the old
ones; there is no tape, and what follows a convolution (bias, ReLU, pooling) is done before its
numbers leave the chip.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import nn

from freshband.federated.clients.base import ParameterLayout
from freshband.federated.clients.gpu import kernels
from freshband.federated.models.resnet18 import BasicBlock

__all__ = ["Arena", "Stack", "stack"]

_SIDES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclasses.dataclass
class Arena:
    """What all layers of a stack work on.

    Attributes
    ----------
    rows : tensor of float32, shape (room, P)
        Every client's weights.
    low : tensor of bfloat16 or float32, shape (room, Q)
        The same as the kernels multiply with it, every parameter at an address that is a multiple
        of 32 numbers, which is what the widest loads ask for.
    count : tensor of int32, shape (1,)
        Clients at work, at most ``room``; the kernels read it when they run.
    lr : tensor of float32, shape (1,)
        Learning rate η.
    images : int
        Images a client has in a batch.
    """

    rows: torch.Tensor
    low: torch.Tensor
    count: torch.Tensor
    lr: torch.Tensor
    images: int

    @property
    def room(self) -> int:
        """Clients there is room for."""
        return len(self.rows)

    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return an array for all clients' images."""
        return torch.empty(
            (self.room, self.images, *shape), dtype=dtype or self.low.dtype, device=self.low.device
        )


@dataclasses.dataclass(frozen=True)
class _Weights:
    """Where a layer's weights, and its biases after them, lie in a row and in one of ``low``."""

    at: int
    low_at: int
    size: int

    def of(self, arena: Arena, further: int = 0) -> torch.Tensor:
        # The kernels need the first number's address alone; without biases there is nothing there.
        return arena.low[:, self.low_at + (further if further < self.size else 0)]

    def load(self, arena: Arena) -> None:
        low = arena.low[:, self.low_at : self.low_at + self.size]
        low.copy_(arena.rows[:, self.at : self.at + self.size])

    def descend(self, arena: Arena, parts: torch.Tensor) -> None:
        """Move the weights against their gradient, given in parts of shape (parts, room, size)."""
        kernels.descend[_tiles(self.size, 1024), arena.room](
            parts, arena.rows[:, self.at], self.of(arena), arena.lr, arena.count, arena.room,
            arena.rows.stride(0), arena.low.stride(0), self.size, SPLITS=len(parts), BLOCK=1024,
        )  # fmt: skip


class Layer(Protocol):
    """A layer of all clients; arrays have the shape (room, images, height, width, channels)."""

    def forward(self, arena: Arena, x: torch.Tensor, keep: bool) -> torch.Tensor:
        """Return the outputs; ``keep`` what the way back needs."""
        ...

    def back(self, arena: Arena, g: torch.Tensor, further: bool) -> torch.Tensor:
        """Move the weights; return gradients of the inputs if they are to go ``further``."""
        ...


@dataclasses.dataclass
class _Conv:
    """A convolution, with the ReLU or the pooling that follows; a dense layer where sides are 1."""

    weights: _Weights
    biased: bool
    inputs: int
    outputs: int
    side: int  # of the kernel
    stride: int
    height: int
    width: int
    relu: bool = False
    pool: bool = False
    masks: bool = False  # on the way back: go through the ReLU before, too
    masked: bool = False  # the layer after does so for this one
    wide: bool = False  # scores leave in float32
    kept: tuple[torch.Tensor, ...] = ()

    def forward(self, arena: Arena, x: torch.Tensor, keep: bool) -> torch.Tensor:
        height, width = -(-self.height // self.stride), -(-self.width // self.stride)
        rows = arena.images * height * width
        block, columns, depth, warps, stages = forward_tile(self, x.dtype)
        code = y = arena.empty(
            *((height // 2, width // 2) if self.pool else (height, width)), self.outputs,
            dtype=torch.float32 if self.wide else None,
        )  # fmt: skip
        if self.pool:
            code = torch.empty_like(y, dtype=torch.uint8)
        kernels.convolve[_tiles(rows, block) * _tiles(self.outputs, columns), arena.room](
            x, self.weights.of(arena), self.weights.of(arena, self.size), y, code, arena.count,
            arena.low.stride(0), rows, H=self.height, W=self.width, CI=self.inputs, XS=x.shape[-1],
            CO=self.outputs, KS=self.side, STRIDE=self.stride,
            BIAS=self.biased, RELU=self.relu, POOL=self.pool, BM=block, BN=columns,
            BK=depth, num_warps=warps, num_stages=stages,
        )  # fmt: skip
        if keep:
            self.kept = (x, y, code)
        return y

    @property
    def size(self) -> int:
        """Weights, without biases."""
        return self.outputs * self.inputs * self.side**2

    def back(
        self, arena: Arena, g: torch.Tensor, further: bool, extra: torch.Tensor | None = None
    ) -> torch.Tensor:
        """``extra`` are other gradients of the same inputs, to be added."""
        x, y, code = self.kept
        self.kept = ()
        if self.pool:
            g = self._unpool(arena, g, code)
        elif self.relu and not self.masked:
            g = g * (y > 0)
        gx = self._pull(arena, x, g, extra) if further else g
        self._correlate(arena, x, g)
        return gx

    def _pull(
        self, arena: Arena, x: torch.Tensor, g: torch.Tensor, extra: torch.Tensor | None = None
    ) -> torch.Tensor:
        gx = arena.empty(self.height, self.width, self.inputs)
        rows = arena.images * self.height * self.width
        block, columns, depth, warps, stages = back_tile(self, x.dtype)
        turned = x.dtype == torch.float32
        weights = self.weights.of(arena)
        if turned:
            at = self.weights.low_at
            weights = arena.low[:, at : at + self.size]
            weights = weights.view(arena.room, self.outputs, self.side**2, self.inputs)
            weights = weights.transpose(1, 3).contiguous()
        kernels.convolve_back[_tiles(rows, block) * _tiles(self.inputs, columns), arena.room](
            g, weights, x, x if extra is None else extra, gx, arena.count, weights.stride(0), rows,
            H=self.height, W=self.width, CI=self.inputs, CO=self.outputs, KS=self.side,
            STRIDE=self.stride, MASK=self.masks, EXTRA=extra is not None, TURNED=turned, BM=block,
            BN=columns, BK=depth, num_warps=warps, num_stages=stages,
        )  # fmt: skip
        return gx

    def _unpool(self, arena: Arena, g: torch.Tensor, code: torch.Tensor) -> torch.Tensor:
        out = arena.empty(self.height, self.width, self.outputs)
        rows = arena.images * g.shape[2] * g.shape[3]
        channels = _power(self.outputs)
        block = max(1, 8192 // channels)
        kernels.unpool[_tiles(rows, block), arena.room](
            g, code, out, arena.count, rows, W=self.width, C=self.outputs, BM=block, BC=channels,
            num_warps=8,
        )  # fmt: skip
        return out

    def _correlate(self, arena: Arena, x: torch.Tensor, g: torch.Tensor) -> None:
        rows = arena.images * g.shape[2] * g.shape[3]
        block, outs, ins, way, splits, warps, stages = weight_tile(self, x.dtype, rows)
        span = self.weights.size
        pairs = way == "pairs"
        parts = torch.empty((splits * (2 if pairs else 1), arena.room, span), device=x.device)
        constants: dict[str, Any] = {
            "H": self.height, "W": self.width, "CI": self.inputs, "XS": x.shape[-1],
            "CO": self.outputs, "KS": self.side, "BIAS": self.biased, "SPLITS": splits,
            "BM": block, "num_warps": warps, "num_stages": stages,
        }  # fmt: skip
        if pairs:
            kernels.correlate_pairs[self.side, arena.room, splits](
                x, g, parts, arena.count, rows, arena.room, span, **constants
            )
        else:
            tiles = _tiles(self.outputs, outs) * _tiles(self.inputs, ins)
            places = self.side if way == "rows" else self.side**2
            kernels.correlate[tiles * places, arena.room, splits](
                x, g, parts, arena.count, rows, arena.room, span, STRIDE=self.stride,
                TRIPLE=way == "rows", BO=outs, BI=ins, **constants,
            )  # fmt: skip
        self.weights.descend(arena, parts)


@dataclasses.dataclass
class _Norm:
    """GroupNorm, plus the way around a residual block, then ReLU."""

    weights: _Weights
    channels: int
    groups: int
    eps: float
    relu: bool = False
    kept: tuple[torch.Tensor, ...] = ()

    def forward(
        self, arena: Arena, x: torch.Tensor, keep: bool, extra: torch.Tensor | None = None
    ) -> torch.Tensor:
        y = torch.empty_like(x)
        stats = arena.empty(2 * self.groups, dtype=torch.float32)
        kernels.normalise[arena.images, arena.room](
            x, self.weights.of(arena), self.weights.of(arena, self.channels),
            x if extra is None else extra, y, stats, arena.count, arena.low.stride(0),
            arena.images, self.eps, EXTRA=extra is not None, **self._constants(x),
        )  # fmt: skip
        if keep:
            self.kept = (x, y, stats)
        return y

    def _constants(self, x: torch.Tensor) -> dict[str, Any]:
        return {
            "PIXELS": x.shape[2] * x.shape[3],
            "C": self.channels,
            "GROUPS": self.groups,
            "RELU": self.relu,
            "BM": max(4, min(8192 // self.channels, _power(x.shape[2] * x.shape[3]))),
            "num_warps": 8,
        }

    def back(
        self, arena: Arena, g: torch.Tensor, further: bool, extra: torch.Tensor | None = None
    ) -> torch.Tensor:
        """``extra`` receives the gradients of the way around."""
        x, y, stats = self.kept
        self.kept = ()
        gx = torch.empty_like(x)
        parts = arena.empty(2 * self.channels, dtype=torch.float32)
        kernels.normalise_back[arena.images, arena.room](
            g, x, y, self.weights.of(arena), stats, gx, gx if extra is None else extra, parts,
            arena.count, arena.low.stride(0), arena.images, EXTRA=extra is not None,
            **self._constants(x),
        )  # fmt: skip
        self.weights.descend(arena, parts.sum(dim=1)[None])
        return gx


@dataclasses.dataclass
class _Residual:
    """`ReLU(body(x) + shortcut(x))`; the body ends with a norm, which adds the two."""

    body: _Chain
    last: _Norm
    shortcut: _Chain

    def forward(self, arena: Arena, x: torch.Tensor, keep: bool) -> torch.Tensor:
        around = self.shortcut.forward(arena, x, keep)
        return self.last.forward(arena, self.body.forward(arena, x, keep), keep, around)

    def back(self, arena: Arena, g: torch.Tensor, further: bool) -> torch.Tensor:
        around = torch.empty_like(g)
        g = self.last.back(arena, g, True, around)
        return self.body.back(arena, g, True, self.shortcut.back(arena, around, True))


@dataclasses.dataclass
class _Mean:
    """The mean over pixels."""

    pixels: tuple[int, int]

    def forward(self, arena: Arena, x: torch.Tensor, keep: bool) -> torch.Tensor:
        return x.mean(dim=(2, 3), keepdim=True)

    def back(self, arena: Arena, g: torch.Tensor, further: bool) -> torch.Tensor:
        height, width = self.pixels
        return (g / (height * width)).expand(-1, -1, height, width, -1).contiguous()


@dataclasses.dataclass
class _Flatten:
    """All numbers of an image in a row, in torch's order: the channels first."""

    shape: tuple[int, int, int]

    def forward(self, arena: Arena, x: torch.Tensor, keep: bool) -> torch.Tensor:
        return x.movedim(-1, 2).reshape(*x.shape[:2], 1, 1, -1)

    def back(self, arena: Arena, g: torch.Tensor, further: bool) -> torch.Tensor:
        channels, height, width = self.shape
        g = g.reshape(*g.shape[:2], channels, height, width)
        return g.movedim(2, -1).contiguous()


@dataclasses.dataclass
class _Chain:
    """Layers in a row; none is the identity."""

    layers: list[Layer]

    def forward(self, arena: Arena, x: torch.Tensor, keep: bool) -> torch.Tensor:
        for layer in self.layers:
            x = layer.forward(arena, x, keep)
        return x

    def back(
        self, arena: Arena, g: torch.Tensor, further: bool, extra: torch.Tensor | None = None
    ) -> torch.Tensor:
        """``extra`` are other gradients of the chain's inputs, to be added."""
        for layer in reversed(self.layers[1:]):
            g = layer.back(arena, g, True)
        if not self.layers:
            return g
        first = self.layers[0]
        if extra is not None and isinstance(first, _Conv):
            return first.back(arena, g, further, extra)
        return first.back(arena, g, further)


@dataclasses.dataclass
class Stack:
    """A whole model of all clients.

    Attributes
    ----------
    chain : layers
    first : the first of them
    weights : every layer's place
    width : int
        Numbers Q in a row of the arena's ``low``.
    shape : (channels, height, width) of an image
    side : int
        Of the first convolution's kernel, whose patches are read with the images.
    columns : int
        Numbers of a patch, padded to a power of two.
    mean, std : tensors of float32, shape (channels,)
        How images are normalised.
    """

    chain: _Chain
    first: _Conv
    weights: list[_Weights]
    width: int
    shape: tuple[int, int, int]
    side: int
    columns: int
    mean: torch.Tensor
    std: torch.Tensor

    def load(self, arena: Arena) -> None:
        """Round the clients' weights for the kernels."""
        for weights in self.weights:
            weights.load(arena)

    def scores(
        self, arena: Arena, images: torch.Tensor, samples: torch.Tensor, step: int, keep: bool
    ) -> torch.Tensor:
        """Return float32 scores, shape (room, images, classes), of ``samples[:, step]``."""
        x = self._begin(arena, images, samples, step, keep)
        for layer in self.chain.layers[0 if self.first.pool else 1 :]:
            x = layer.forward(arena, x, keep)
        return x[:, :, 0, 0]

    def _begin(
        self, arena: Arena, images: torch.Tensor, samples: torch.Tensor, step: int, keep: bool
    ) -> torch.Tensor:
        """Return the first convolution's outputs, or its inputs if pooling follows it."""
        channels, height, width = self.shape
        first = self.first
        patches = arena.empty(*((height, width) if keep or first.pool else (1, 1)), self.columns)
        block = 128
        grid = _tiles(arena.images * height * width, block), arena.room
        constants = {
            "STEPS": samples.shape[1], "BATCH": arena.images, "C": channels, "H": height,
            "W": width, "KS": self.side, "COLS": self.columns, "BM": block,
        }  # fmt: skip
        if first.pool:
            kernels.gather_patches[grid](
                images, samples, self.mean, self.std, patches, arena.count, step, **constants
            )
            return patches
        y = arena.empty(height, width, first.outputs)
        kernels.convolve_images[grid](
            images, samples, self.mean, self.std, patches, first.weights.of(arena),
            first.weights.of(arena, first.size), y, arena.count, arena.low.stride(0), step,
            CO=first.outputs, BIAS=first.biased, RELU=first.relu, KEEP=keep,
            BN=max(16, _power(first.outputs)), **constants,
        )  # fmt: skip
        if keep:
            first.kept = (patches, y, y)
        return y

    def descend(self, arena: Arena, scores: torch.Tensor, labels: torch.Tensor) -> None:
        """Take a step down the mean cross-entropy; labels have the shape (room, images)."""
        g = scores.softmax(dim=-1)
        g.scatter_add_(2, labels[..., None], torch.full_like(g[..., :1], -1.0))
        g = (g / arena.images).to(arena.low.dtype)
        self.chain.back(arena, g[:, :, None, None], False)


def stack(
    module: nn.Module,
    layout: ParameterLayout,
    shape: tuple[int, int, int],
    mean: object,
    std: object,
) -> Stack | None:
    """Return a module's stack, or None if it has a part that is not known here."""
    places, at, low_at = {}, 0, 0
    for path, part in module.named_modules():
        size = sum(parameter.numel() for parameter in part.parameters(recurse=False))
        if size:
            places[path] = _Weights(at, low_at, size)
            at += size
            low_at += _tiles(size, 32) * 32
    try:
        builder = _Builder(places, shape)
        chain = builder.chain(module, "")
    except _UnknownPartError:
        return None
    first = chain.layers[0] if chain.layers else None
    final = chain.layers[-1] if chain.layers else None
    if not isinstance(first, _Conv) or first.stride != 1 or first.width == 1:
        return None
    if not isinstance(final, _Conv) or final.width != 1 or final.relu:
        return None
    side, patch = first.side, first.inputs * first.side**2
    if patch > 128 or first.outputs > 128:
        return None
    first.inputs, first.side, final.wide = patch, 1, True
    device = next(module.parameters()).device
    return Stack(
        chain, first, list(places.values()), low_at, shape, side, max(16, _power(patch)),
        torch.tensor(mean, device=device), torch.tensor(std, device=device),
    )  # fmt: skip


class _UnknownPartError(Exception):
    pass


class _Builder:
    """Walks over a module and keeps the shape of what flows through it."""

    def __init__(self, places: dict[str, _Weights], shape: tuple[int, int, int]) -> None:
        self.places = places
        self.shape = shape

    def chain(self, module: nn.Module, name: str) -> _Chain:
        layers: list[Layer] = []
        for path, part in _parts(module, name):
            self._add(layers, path, part)
        for before, after in pairwise(layers):
            if isinstance(before, _Conv) and isinstance(after, _Conv):
                after.masks = before.masked = before.relu and not before.pool
        return _Chain(layers)

    def _add(self, layers: list[Layer], path: str, part: nn.Module) -> None:
        last = layers[-1] if layers else None
        if isinstance(part, nn.Conv2d):
            layers.append(self._convolution(path, part))
        elif isinstance(part, nn.Linear):
            layers.append(self._dense(path, part))
        elif isinstance(part, nn.ReLU):
            if not isinstance(last, _Conv | _Norm):
                raise _UnknownPartError
            last.relu = True
        elif isinstance(part, nn.MaxPool2d):
            self._pool(last, part)
        elif isinstance(part, nn.GroupNorm):
            layers.append(self._norm(path, part))
        elif isinstance(part, BasicBlock):
            layers.append(self._residual(path, part))
        elif isinstance(part, nn.AdaptiveAvgPool2d) and part.output_size in (1, (1, 1)):
            layers.append(_Mean(self.shape[1:]))
            self.shape = (self.shape[0], 1, 1)
        elif isinstance(part, nn.Flatten) and (part.start_dim, part.end_dim) == (1, -1):
            if self.shape[1:] != (1, 1):
                layers.append(_Flatten(self.shape))
            channels, height, width = self.shape
            self.shape = (channels * height * width, 1, 1)
        elif not isinstance(part, nn.Identity):
            raise _UnknownPartError

    def _convolution(self, path: str, part: nn.Conv2d) -> _Conv:
        inputs, height, width = self.shape
        side, stride = part.kernel_size[0], part.stride[0]
        plain = (
            side in (1, 3)
            and part.kernel_size == (side, side)
            and part.stride == (stride, stride)
            and part.padding == (side // 2, side // 2)
            and part.dilation == (1, 1)
            and part.groups == 1
            and part.padding_mode == "zeros"
        )
        if not plain:
            raise _UnknownPartError
        self.shape = (part.out_channels, -(-height // stride), -(-width // stride))
        return _Conv(
            self.places[path], part.bias is not None, inputs, part.out_channels, side,
            stride, height, width,
        )  # fmt: skip

    def _dense(self, path: str, part: nn.Linear) -> _Conv:
        if self.shape[1:] != (1, 1):
            raise _UnknownPartError
        self.shape = (part.out_features, 1, 1)
        return _Conv(
            self.places[path], part.bias is not None, part.in_features, part.out_features,
            1, 1, 1, 1,
        )  # fmt: skip

    def _pool(self, last: Layer | None, part: nn.MaxPool2d) -> None:
        channels, height, width = self.shape
        fits = part.kernel_size in (2, (2, 2)) and part.stride in (2, (2, 2))
        fits = fits and part.padding in (0, (0, 0)) and part.dilation in (1, (1, 1))
        even = height in _SIDES and width in _SIDES and width <= 64
        if not (isinstance(last, _Conv) and last.stride == 1 and not last.pool and fits and even):
            raise _UnknownPartError
        last.pool = True
        self.shape = (channels, height // 2, width // 2)

    def _norm(self, path: str, part: nn.GroupNorm) -> _Norm:
        channels, groups = part.num_channels, part.num_groups
        if not part.affine or channels not in _SIDES or channels < 4 or groups > channels // 2:
            raise _UnknownPartError
        return _Norm(self.places[path], channels, groups, part.eps)

    def _residual(self, path: str, part: BasicBlock) -> _Residual:
        before = self.shape
        shortcut = self.chain(part.shortcut, f"{path}.shortcut")
        self.shape = before
        body = self.chain(part.body, f"{path}.body")
        last = body.layers.pop()
        if not (isinstance(last, _Norm) and isinstance(body.layers[0], _Conv)):
            raise _UnknownPartError
        last.relu = True
        return _Residual(body, last, shortcut)


def _parts(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    if type(module) is not nn.Sequential:
        yield name, module
        return
    for child, part in module.named_children():
        yield from _parts(part, f"{name}.{child}" if name else child)


def forward_tile(layer: _Conv, dtype: torch.dtype) -> tuple[int, int, int, int, int]:
    """Return pixels, outputs and depth of a tile, warps and stages of `kernels.convolve`.

    These are the fastest of some thirty, measured on an H200, of every layer of cnn8 and of the
    stages of ResNet-18; other GPUs like other tiles, but not by much.
    """
    most = 256 if layer.outputs >= 256 else 128
    return _tile(layer.outputs, layer.inputs, layer.width, dtype, most)


def back_tile(layer: _Conv, dtype: torch.dtype) -> tuple[int, int, int, int, int]:
    """Return the same of `kernels.convolve_back`."""
    most = 256 if layer.inputs == 256 else 128
    return _tile(layer.inputs, layer.outputs, layer.width, dtype, most)


def _tile(
    columns: int, depth: int, width: int, dtype: torch.dtype, most: int
) -> tuple[int, int, int, int, int]:
    low = dtype == torch.bfloat16
    wide = min(most if low else 128, max(16, _power(columns)))
    deep = 64 if low and depth % 64 == 0 else 32
    if width == 1:  # dense layers have few rows
        return 64, min(wide, 32), deep, 4, 4
    return 256 if wide <= 32 else 128, wide, deep, 8, 3


def weight_tile(
    layer: _Conv, dtype: torch.dtype, rows: int
) -> tuple[int, int, int, str, int, int, int]:
    """Return pixels, outputs, inputs, way, splits, warps and stages for the weights' gradients.

    The way is `kernels.correlate` with one place of the kernel at a time ("places") or three
    ("rows"), or `kernels.correlate_pairs` ("pairs").
    """
    outs = min(128, max(16, _power(layer.outputs)))
    ins = min(128, max(16, _power(layer.inputs)))
    if dtype == torch.float32:  # as few warps as it takes to avoid a unit that cannot transpose
        wide = layer.side == 3 and ins == 128
        outs, ins = (min(outs, 32), ins) if wide else (min(outs, 64), min(ins, 32))
        way = "rows" if layer.side == 3 else "places"
        tiles = _tiles(layer.outputs, outs) * _tiles(layer.inputs, ins) * layer.side
        splits = max(1, min(64 // tiles, rows // 256))
        return 32, outs, ins, way, splits, 4 if wide else max(1, outs * ins // 1024), 3
    few = layer.outputs in (16, 32) and ins <= 32 and layer.stride == 1 and layer.width % 2 == 0
    if few:
        return 64, outs, ins, "pairs", max(1, min(24 // layer.side, rows // 512)), 4, 3
    tiles = _tiles(layer.outputs, outs) * _tiles(layer.inputs, ins)
    if layer.side == 3 and outs <= 64 and ins <= 64:
        return 64, outs, ins, "rows", max(1, min(8 // tiles, rows // 512)), 4, 3
    splits = max(1, min(64 // (tiles * layer.side**2), rows // 1024))
    return 64, outs, ins, "places", splits, 4, 3


def _tiles(size: int, tile: int) -> int:
    return -(-size // tile)


def _power(size: int) -> int:
    return 1 << max(size - 1, 0).bit_length()
