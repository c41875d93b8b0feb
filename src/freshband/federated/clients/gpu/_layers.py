"""Layers of many clients' models: each computes all clients in a few launches of one kernel.

A layer goes forward and back by itself and moves its own weights on the way back, once no other
layer needs the old ones. There is no tape, and what follows a convolution (bias, ReLU, pooling) is
done before its numbers leave the chip. `_stacking` builds a model of these layers from a module.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

import torch

from freshband.federated.clients.gpu import _gradients, _kernels
from freshband.federated.clients.gpu._tiles import conv_tile, power_of_two, tiles, weight_tile


@dataclasses.dataclass
class Arena:
    """What all layers work on; kernels read the tensors when they run."""

    rows: torch.Tensor  # float32, shape (room, P): every client's weights
    low: torch.Tensor  # bfloat16 or float32, shape (room, Q): the weights as they are multiplied
    count: torch.Tensor  # int32, shape (1,): number of clients to compute, at most `room`
    lr: torch.Tensor  # float32, shape (1,): learning rate η
    images: int  # in a client's batch

    @property
    def room(self) -> int:
        """The largest number of clients."""
        return len(self.rows)

    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return an array for the images of all clients."""
        return torch.empty(
            (self.room, self.images, *shape), dtype=dtype or self.low.dtype, device=self.low.device
        )


@dataclasses.dataclass(frozen=True)
class Weights:
    """Where a layer's weights, and its biases after them, lie in ``rows`` and in ``low``."""

    at: int
    low_at: int
    size: int

    def of(self, arena: Arena, further: int = 0) -> torch.Tensor:
        """Return a tensor that begins at the first weight, or ``further`` numbers behind it."""
        # The kernels need the first number's address alone; without biases there is nothing there.
        return arena.low[:, self.low_at + (further if further < self.size else 0)]

    def load(self, arena: Arena) -> None:
        """Round the weights to the precision that kernels multiply."""
        low = arena.low[:, self.low_at : self.low_at + self.size]
        low.copy_(arena.rows[:, self.at : self.at + self.size])

    def descend(self, arena: Arena, parts: torch.Tensor) -> None:
        """Move the weights against their gradient, given in parts of shape (parts, room, size)."""
        _gradients.descend[tiles(self.size, 1024), arena.room](
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
class Conv:
    """A convolution, with the ReLU or the pooling that follows; a dense layer where sides are 1."""

    weights: Weights
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

    @property
    def size(self) -> int:
        """The number of weights, without biases."""
        return self.outputs * self.inputs * self.side**2

    def _constants(self) -> dict[str, Any]:
        return {
            "H": self.height, "W": self.width, "CI": self.inputs, "CO": self.outputs,
            "KS": self.side,
        }  # fmt: skip

    def forward(self, arena: Arena, x: torch.Tensor, keep: bool) -> torch.Tensor:
        height, width = -(-self.height // self.stride), -(-self.width // self.stride)
        rows = arena.images * height * width
        tile = conv_tile(self.outputs, self.inputs, self.width, x.dtype)
        code = y = arena.empty(
            *((height // 2, width // 2) if self.pool else (height, width)), self.outputs,
            dtype=torch.float32 if self.wide else None,
        )  # fmt: skip
        if self.pool:
            code = torch.empty_like(y, dtype=torch.uint8)
        _kernels.convolve[tiles(rows, tile["BM"]) * tiles(self.outputs, tile["BN"]), arena.room](
            x, self.weights.of(arena), self.weights.of(arena, self.size), y, code, arena.count,
            arena.low.stride(0), rows, XS=x.shape[-1], STRIDE=self.stride, BIAS=self.biased,
            RELU=self.relu, POOL=self.pool, **tile, **self._constants(),
        )  # fmt: skip
        if keep:
            self.kept = (x, y, code)
        return y

    def back(
        self, arena: Arena, g: torch.Tensor, further: bool, extra: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Go back; ``extra`` are other gradients of the same inputs, to be added."""
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
        self, arena: Arena, x: torch.Tensor, g: torch.Tensor, extra: torch.Tensor | None
    ) -> torch.Tensor:
        """Return the inputs' gradients."""
        gx = arena.empty(self.height, self.width, self.inputs)
        rows = arena.images * self.height * self.width
        tile = conv_tile(self.inputs, self.outputs, self.width, x.dtype, back=True)
        turned = x.dtype == torch.float32
        weights = self.weights.of(arena)
        if turned:
            at = self.weights.low_at
            weights = arena.low[:, at : at + self.size]
            weights = weights.view(arena.room, self.outputs, self.side**2, self.inputs)
            weights = weights.transpose(1, 3).contiguous()
        grid = tiles(rows, tile["BM"]) * tiles(self.inputs, tile["BN"]), arena.room
        _gradients.convolve_back[grid](
            g, weights, x, x if extra is None else extra, gx, arena.count, weights.stride(0), rows,
            STRIDE=self.stride, MASK=self.masks, EXTRA=extra is not None, TURNED=turned,
            **tile, **self._constants(),
        )  # fmt: skip
        return gx

    def _unpool(self, arena: Arena, g: torch.Tensor, code: torch.Tensor) -> torch.Tensor:
        out = arena.empty(self.height, self.width, self.outputs)
        rows = arena.images * g.shape[2] * g.shape[3]
        channels = power_of_two(self.outputs)
        block = max(1, 8192 // channels)
        _gradients.unpool[tiles(rows, block), arena.room](
            g, code, out, arena.count, rows, W=self.width, C=self.outputs, BM=block, BC=channels,
            num_warps=8,
        )  # fmt: skip
        return out

    def _correlate(self, arena: Arena, x: torch.Tensor, g: torch.Tensor) -> None:
        """Compute the weights' gradients and move the weights."""
        rows = arena.images * g.shape[2] * g.shape[3]
        channels = x.shape[-1]  # the first layer's patches are padded
        paired = self.stride == 1 and self.width % 2 == 0 and power_of_two(channels) == channels
        way, tile = weight_tile(self.outputs, self.inputs, self.side, x.dtype, rows, paired=paired)
        splits, span = tile["SPLITS"], self.weights.size
        parts = torch.empty((splits * (1 + (way == "pairs")), arena.room, span), device=x.device)
        given = (x, g, parts, arena.count, rows, arena.room, span)
        constants = {"XS": channels, "BIAS": self.biased, **tile, **self._constants()}
        if way == "pairs":
            del constants["BO"], constants["BI"]
            _gradients.correlate_pairs[self.side, arena.room, splits](*given, **constants)
        else:
            count = tiles(self.outputs, tile["BO"]) * tiles(self.inputs, tile["BI"])
            places = self.side if way == "rows" else self.side**2
            _gradients.correlate[count * places, arena.room, splits](
                *given, STRIDE=self.stride, TRIPLE=way == "rows", **constants
            )
        self.weights.descend(arena, parts)


@dataclasses.dataclass
class Norm:
    """GroupNorm, plus the shortcut of a residual block, then ReLU."""

    weights: Weights
    channels: int
    groups: int
    eps: float
    relu: bool = False
    kept: tuple[torch.Tensor, ...] = ()

    def forward(
        self, arena: Arena, x: torch.Tensor, keep: bool, shortcut: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Normalise; add the ``shortcut``."""
        y = torch.empty_like(x)
        stats = arena.empty(2 * self.groups, dtype=torch.float32)
        _kernels.normalise[arena.images, arena.room](
            x, self.weights.of(arena), self.weights.of(arena, self.channels),
            x if shortcut is None else shortcut, y, stats, arena.count, arena.low.stride(0),
            arena.images, self.eps, EXTRA=shortcut is not None, **self._constants(x),
        )  # fmt: skip
        if keep:
            self.kept = (x, y, stats)
        return y

    def _constants(self, x: torch.Tensor) -> dict[str, Any]:
        pixels = x.shape[2] * x.shape[3]
        return {
            "PIXELS": pixels, "C": self.channels, "GROUPS": self.groups, "RELU": self.relu,
            "BM": max(4, min(8192 // self.channels, power_of_two(pixels))), "num_warps": 8,
        }  # fmt: skip

    def back(
        self, arena: Arena, g: torch.Tensor, further: bool, shortcut: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Go back; ``shortcut`` receives the gradients of what was added."""
        x, y, stats = self.kept
        self.kept = ()
        gx = torch.empty_like(x)
        parts = arena.empty(2 * self.channels, dtype=torch.float32)
        _gradients.normalise_back[arena.images, arena.room](
            g, x, y, self.weights.of(arena), stats, gx, gx if shortcut is None else shortcut,
            parts, arena.count, arena.low.stride(0), arena.images, EXTRA=shortcut is not None,
            **self._constants(x),
        )  # fmt: skip
        self.weights.descend(arena, parts.sum(dim=1)[None])
        return gx


@dataclasses.dataclass
class Residual:
    """The sum of two chains, then ReLU; a norm at the end of the body computes both if it can."""

    body: Chain
    shortcut: Chain
    last: Norm | None
    relu: bool = False
    kept: torch.Tensor | None = None

    def forward(self, arena: Arena, x: torch.Tensor, keep: bool) -> torch.Tensor:
        around = self.shortcut.forward(arena, x, keep)
        y = self.body.forward(arena, x, keep)
        if self.last is not None:
            self.last.relu = self.relu
            return self.last.forward(arena, y, keep, around)
        y = (y + around).relu() if self.relu else y + around
        if keep:
            self.kept = y
        return y

    def back(
        self, arena: Arena, g: torch.Tensor, further: bool, extra: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Go back through both; ``extra`` are other gradients of the same inputs."""
        if self.last is not None:
            around = torch.empty_like(g)
            g = self.last.back(arena, g, True, around)
        else:
            if self.relu and self.kept is not None:
                g = g * (self.kept > 0)
            self.kept = None
            around = g
        return self.body.back(arena, g, True, self.shortcut.back(arena, around, True, extra))


@dataclasses.dataclass
class Mean:
    """The mean over pixels."""

    pixels: tuple[int, int]

    def forward(self, arena: Arena, x: torch.Tensor, keep: bool) -> torch.Tensor:
        """Return the means as an image of one pixel."""
        return x.mean(dim=(2, 3), keepdim=True)

    def back(self, arena: Arena, g: torch.Tensor, further: bool) -> torch.Tensor:
        """Share the gradients among the pixels."""
        height, width = self.pixels
        return (g / (height * width)).expand(-1, -1, height, width, -1).contiguous()


@dataclasses.dataclass
class Flatten:
    """All numbers of an image as the channels of one pixel, in torch's order."""

    shape: tuple[int, int, int]

    def forward(self, arena: Arena, x: torch.Tensor, keep: bool) -> torch.Tensor:
        """Put the channels first, then flatten."""
        return x.movedim(-1, 2).reshape(*x.shape[:2], 1, 1, -1)

    def back(self, arena: Arena, g: torch.Tensor, further: bool) -> torch.Tensor:
        """Put the channels last again."""
        return g.reshape(*g.shape[:2], *self.shape).movedim(2, -1).contiguous()


@dataclasses.dataclass
class Chain:
    """Layers one after the other; no layer is the identity."""

    layers: list[Layer]

    def forward(self, arena: Arena, x: torch.Tensor, keep: bool) -> torch.Tensor:
        for layer in self.layers:
            x = layer.forward(arena, x, keep)
        return x

    def back(
        self, arena: Arena, g: torch.Tensor, further: bool, extra: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Go back through all layers; ``extra`` are other gradients of the chain's inputs."""
        for layer in reversed(self.layers[1:]):
            g = layer.back(arena, g, True)
        if self.layers:
            first = self.layers[0]
            if isinstance(first, Conv | Residual):
                return first.back(arena, g, further, extra)
            g = first.back(arena, g, further)
        return g if extra is None else g + extra
