"""A module as a stack of layers that compute all clients at once, where its parts allow it.

`stack` traces a module with `torch.fx`, so it takes modules of any class that compute nothing but
these: 3×3 and 1×1 convolutions, GroupNorm, ReLU, 2×2 max-pooling after a convolution, the mean over
pixels, flattening, dense layers, and sums of two branches (residual blocks). For any other module
the error says what is not supported.
"""

from __future__ import annotations

import dataclasses
import operator
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NoReturn

import torch
from torch import fx, nn

from freshband.federated.clients._base import ParameterLayout
from freshband.federated.clients.gpu import _kernels
from freshband.federated.clients.gpu._layers import (
    Arena,
    Chain,
    Conv,
    Flatten,
    Layer,
    Mean,
    Norm,
    Residual,
    Weights,
)
from freshband.federated.clients.gpu._tiles import power_of_two, tiles

_SUMS = (operator.add, operator.iadd, torch.add, "add", "add_")
_RELUS = (torch.relu, torch.relu_, nn.functional.relu, "relu", "relu_")
_FLATTENS = (torch.flatten, "flatten")


class UnsupportedModuleError(Exception):
    """Says why the kernels cannot train a module."""


@dataclasses.dataclass
class Stack:
    """A whole model of all clients.

    Its first layer sees an image as ``columns`` numbers per pixel: the pixels under a kernel of
    ``side``, padded to a power of two. They are gathered as images are read.
    """

    chain: Chain
    first: Conv
    weights: list[Weights]  # of every layer
    width: int  # number Q of numbers in a row of the arena's `low`
    shape: tuple[int, int, int]  # channels, height and width of an image
    side: int
    columns: int
    mean: torch.Tensor  # float32, one per channel
    std: torch.Tensor

    def train(
        self, arena: Arena, images: torch.Tensor, labels: torch.Tensor, samples: torch.Tensor
    ) -> None:
        """Take the steps of samples of the shape (room, steps, images) with the arena's rows."""
        self._load(arena)
        for step, wanted in enumerate(labels[samples].unbind(dim=1)):
            scores = self._scores(arena, images, samples, step, keep=True)
            self._descend(arena, scores, wanted)

    def score(self, arena: Arena, images: torch.Tensor, samples: torch.Tensor) -> torch.Tensor:
        """Return float32 scores, shape (room, images, classes), of the samples of step 0."""
        self._load(arena)
        return self._scores(arena, images, samples, 0, keep=False)

    def _load(self, arena: Arena) -> None:
        for weights in self.weights:
            weights.load(arena)

    def _scores(
        self, arena: Arena, images: torch.Tensor, samples: torch.Tensor, step: int, keep: bool
    ) -> torch.Tensor:
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
        grid = tiles(arena.images * height * width, block), arena.room
        constants = {
            "STEPS": samples.shape[1], "BATCH": arena.images, "C": channels, "H": height,
            "W": width, "KS": self.side, "COLS": self.columns, "BM": block,
        }  # fmt: skip
        if first.pool:
            _kernels.gather_patches[grid](
                images, samples, self.mean, self.std, patches, arena.count, step, **constants
            )
            return patches
        y = arena.empty(height, width, first.outputs)
        _kernels.convolve_images[grid](
            images, samples, self.mean, self.std, patches, first.weights.of(arena),
            first.weights.of(arena, first.size), y, arena.count, arena.low.stride(0), step,
            CO=first.outputs, BIAS=first.biased, RELU=first.relu, KEEP=keep,
            BN=max(16, power_of_two(first.outputs)), **constants,
        )  # fmt: skip
        if keep:
            first.kept = (patches, y, y)
        return y

    def _descend(self, arena: Arena, scores: torch.Tensor, labels: torch.Tensor) -> None:
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
) -> Stack:
    """Return a module's stack for images of a shape, or raise `UnsupportedModuleError`."""
    places, at, low_at = {}, 0, 0
    for path, part in module.named_modules():
        size = sum(parameter.numel() for parameter in part.parameters(recurse=False))
        if size:
            places[path] = Weights(at, low_at, size)
            at += size
            low_at += tiles(size, 32) * 32  # the widest loads require such addresses
    if at != layout.size:
        _refuse("some of its layers share parameters")
    chain = _Builder(module, places, shape).build()
    first = chain.layers[0] if chain.layers else None
    final = chain.layers[-1] if chain.layers else None
    if not isinstance(first, Conv) or first.stride != 1 or first.width == 1:
        _refuse("it does not begin with a convolution of stride 1")
    if not isinstance(final, Conv) or final.width != 1 or final.relu:
        _refuse("it does not end with a dense layer")
    side, patch = first.side, first.inputs * first.side**2
    if patch > 128 or first.outputs > 128:
        _refuse("its first convolution has more than 128 outputs or inputs under its kernel")
    first.inputs, first.side, final.wide = patch, 1, True
    device = next(module.parameters()).device
    return Stack(
        chain, first, list(places.values()), low_at, shape, side, max(16, power_of_two(patch)),
        torch.tensor(mean, device=device), torch.tensor(std, device=device),
    )  # fmt: skip


def _refuse(why: str) -> NoReturn:
    raise UnsupportedModuleError(why)


class _Builder:
    """Follows a traced module from its input to its output, with the shape of what flows."""

    def __init__(
        self, module: nn.Module, places: dict[str, Weights], shape: tuple[int, int, int]
    ) -> None:
        self.module = module
        self.places = places
        self.shape = shape
        self.called: set[str] = set()
        try:
            self.graph = fx.Tracer().trace(module)
        except Exception as error:  # whatever the module's own code raises when it is traced
            why = (str(error).strip() or type(error).__name__).partition("\n")[0]
            _refuse(f"torch.fx cannot trace it: {why}")
        self.forks: dict[fx.Node, fx.Node] = {}  # of every sum, the node where its branches begin
        for node in self.graph.nodes:
            if node.op != "call_module" and node.target in _SUMS:
                self.forks[node] = self._fork(node)
        self.rules: dict[type, Callable[[list[Layer], str, Any], None]] = {
            nn.Conv2d: self._convolve,
            nn.Linear: self._dense,
            nn.GroupNorm: self._normalise,
            nn.ReLU: self._relu,
            nn.MaxPool2d: self._pool,
            nn.AdaptiveAvgPool2d: self._average,
            nn.Flatten: self._flatten,
            nn.Identity: lambda layers, path, part: None,
        }

    def build(self) -> Chain:
        """Return the layers of the whole module."""
        first, *_, last = self.graph.nodes
        ways = Counter(self.forks.values())
        for node in self.graph.nodes:
            if node is not last and len(node.users) != 1 + ways[node]:
                _refuse(f"the output of {_name(node)} goes to other places than one layer or a sum")
        return self._chain(first, last.all_input_nodes[0])

    def _chain(self, first: fx.Node, last: fx.Node) -> Chain:
        """Return the layers after one node up to another."""
        nodes: list[fx.Node] = []
        for node in self._way_back(last):
            if node is first:
                break
            nodes.append(node)
        layers: list[Layer] = []
        for node in reversed(nodes):
            if node in self.forks:
                self._add(layers, node)
            else:
                part = self._part(node)
                if type(part) not in self.rules:
                    _refuse(f"{_name(node)}, of type {type(part).__name__}, has no kernel")
                self.rules[type(part)](layers, str(node.target), part)
        for before, after in pairwise(layers):
            if isinstance(before, Conv) and isinstance(after, Conv):
                after.masks = before.masked = before.relu and not before.pool
        return Chain(layers)

    def _way_back(self, node: fx.Node) -> Iterator[fx.Node]:
        """Yield a node and those before it; from a sum, go on where its branches begin."""
        yield node
        while node.op != "placeholder":
            if node not in self.forks and len(node.all_input_nodes) != 1:
                _refuse(f"{_name(node)} takes {len(node.all_input_nodes)} inputs")
            node = self.forks.get(node) or node.all_input_nodes[0]
            yield node

    def _fork(self, node: fx.Node) -> fx.Node:
        if len(node.args) != 2 or len(node.all_input_nodes) != 2 or node.kwargs:
            _refuse("it adds something else than the outputs of two layers")
        one, other = node.all_input_nodes
        seen = set(self._way_back(one))
        return next(each for each in self._way_back(other) if each in seen)

    def _part(self, node: fx.Node) -> nn.Module:
        """Return the layer that a node calls; functions become the layer that does the same."""
        if node.op == "call_module":
            return self.module.get_submodule(str(node.target))
        if node.target in _RELUS:
            return nn.ReLU()
        if node.target in _FLATTENS:
            given: dict[str, Any] = dict(zip(("start_dim", "end_dim"), node.args[1:], strict=False))
            return nn.Flatten(**{"start_dim": 0, **given, **node.kwargs})
        _refuse(f"it calls {_name(node)}, which has no kernel")

    def _weights(self, path: str) -> Weights:
        if path in self.called:
            _refuse(f"layer {path!r} is called twice")
        self.called.add(path)
        return self.places[path]

    def _add(self, layers: list[Layer], node: fx.Node) -> None:
        before = self.shape
        chains, shapes = [], []
        for end in node.all_input_nodes:
            self.shape = before
            chains.append(self._chain(self.forks[node], end))
            shapes.append(self.shape)
        if shapes[0] != shapes[1]:
            _refuse(f"{_name(node)} adds arrays of different shapes")
        chains.sort(key=lambda chain: not isinstance(_last(chain), Norm))  # stable: norms first
        body, shortcut = chains
        last = _last(body)
        if isinstance(last, Norm) and not last.relu:
            body.layers.pop()
            layers.append(Residual(body, shortcut, last))
        else:
            layers.append(Residual(body, shortcut, None))

    def _convolve(self, layers: list[Layer], path: str, part: nn.Conv2d) -> None:
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
            _refuse(f"{path!r} is no plain convolution of 3×3 or 1×1 pixels with matching padding")
        self.shape = (part.out_channels, -(-height // stride), -(-width // stride))
        weights, biased = self._weights(path), part.bias is not None
        layers.append(Conv(weights, biased, inputs, part.out_channels, side, stride, height, width))

    def _dense(self, layers: list[Layer], path: str, part: nn.Linear) -> None:
        if self.shape != (part.in_features, 1, 1):
            _refuse(f"{path!r} is a dense layer of images that are not flattened")
        self.shape = (part.out_features, 1, 1)
        weights, biased = self._weights(path), part.bias is not None
        layers.append(Conv(weights, biased, part.in_features, part.out_features, 1, 1, 1, 1))

    def _normalise(self, layers: list[Layer], path: str, part: nn.GroupNorm) -> None:
        channels, groups = part.num_channels, part.num_groups
        fits = 4 <= channels <= 1024 and power_of_two(channels) == channels
        if not part.affine or not fits or groups > channels // 2:
            _refuse(
                f"{path!r} is a GroupNorm without weights, with one channel per group, or with a "
                "number of channels that is no power of two from 4 to 1024"
            )
        layers.append(Norm(self._weights(path), channels, groups, part.eps))

    def _relu(self, layers: list[Layer], path: str, part: nn.ReLU) -> None:
        last = layers[-1] if layers else None
        if not isinstance(last, Conv | Norm | Residual):
            _refuse("a ReLU follows neither a convolution, a norm, a sum nor a dense layer")
        last.relu = True

    def _pool(self, layers: list[Layer], path: str, part: nn.MaxPool2d) -> None:
        last = layers[-1] if layers else None
        channels, height, width = self.shape
        fits = (
            part.kernel_size in (2, (2, 2))
            and part.stride in (2, (2, 2))
            and part.padding in (0, (0, 0))
            and part.dilation in (1, (1, 1))
            and 2 <= height <= 1024
            and 2 <= width <= 64
            and power_of_two(height) == height
            and power_of_two(width) == width
        )
        if not (fits and isinstance(last, Conv) and last.stride == 1 and not last.pool):
            _refuse(
                f"{path!r} is no 2×2 max-pooling right after a convolution of stride 1, with sides "
                "that are powers of two and a width of at most 64 pixels"
            )
        last.pool = True
        self.shape = (channels, height // 2, width // 2)

    def _average(self, layers: list[Layer], path: str, part: nn.AdaptiveAvgPool2d) -> None:
        if part.output_size not in (1, (1, 1)):
            _refuse(f"{path!r} averages to more than one pixel")
        layers.append(Mean(self.shape[1:]))
        self.shape = (self.shape[0], 1, 1)

    def _flatten(self, layers: list[Layer], path: str, part: nn.Flatten) -> None:
        if (part.start_dim, part.end_dim) != (1, -1):
            _refuse("it flattens something else than each image")
        channels, height, width = self.shape
        if (height, width) != (1, 1):
            layers.append(Flatten(self.shape))
        self.shape = (channels * height * width, 1, 1)


def _last(chain: Chain) -> Layer | None:
    return chain.layers[-1] if chain.layers else None


def _name(node: fx.Node) -> str:
    target = node.target if isinstance(node.target, str) else node.target.__name__
    return repr(target)
