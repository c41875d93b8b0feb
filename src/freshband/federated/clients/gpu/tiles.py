"""The sizes in which kernels cut their work: the fastest of some thirty, measured on an H200.

They were measured with every layer of cnn8 and the stages of ResNet-18. Other GPUs prefer other
tiles, but lose little with these.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch

__all__ = ["ConvTile", "WeightTile", "conv_tile", "power_of_two", "tiles", "weight_tile"]


class ConvTile(NamedTuple):
    """Rows, columns and depth of the products in a convolution, with its launch options."""

    block: int
    columns: int
    depth: int
    warps: int
    stages: int


class WeightTile(NamedTuple):
    """The same of the weights' gradients, and the kernel that computes them.

    It is `gradients.correlate` for one place of the convolution's kernel at a time ("places") or
    for three ("rows"), or `gradients.correlate_pairs` ("pairs").
    """

    block: int
    outputs: int
    inputs: int
    way: Literal["places", "rows", "pairs"]
    splits: int
    warps: int
    stages: int


def conv_tile(
    columns: int, depth: int, width: int, dtype: torch.dtype, *, back: bool = False
) -> ConvTile:
    """Return the tile of a convolution, forward or back, from ``depth`` channels to ``columns``."""
    low = dtype != torch.float32
    large = columns == 256 if back else columns >= 256
    wide = min(256 if large and low else 128, max(16, power_of_two(columns)))
    deep = 64 if low and depth % 64 == 0 else 32
    if width == 1:  # dense layers have few rows
        return ConvTile(64, min(wide, 32), deep, 4, 4)
    return ConvTile(256 if wide <= 32 else 128, wide, deep, 8, 3)


def weight_tile(
    outputs: int, inputs: int, side: int, dtype: torch.dtype, rows: int, *, paired: bool
) -> WeightTile:
    """Return the tile for weights of a convolution over ``rows`` pixels.

    ``paired`` says whether its arrays let two neighbouring pixels be treated as one.
    """
    outs = min(128, max(16, power_of_two(outputs)))
    ins = min(128, max(16, power_of_two(inputs)))
    if dtype == torch.float32:  # as few warps as it takes to avoid a unit that cannot transpose
        wide = side == 3 and ins == 128
        outs, ins = (min(outs, 32), ins) if wide else (min(outs, 64), min(ins, 32))
        splits = max(1, min(64 // (tiles(outputs, outs) * tiles(inputs, ins) * side), rows // 256))
        warps = 4 if wide else max(1, outs * ins // 1024)
        return WeightTile(32, outs, ins, "rows" if side == 3 else "places", splits, warps, 3)
    if paired and outputs in (16, 32) and ins <= 32:
        return WeightTile(64, outs, ins, "pairs", max(1, min(24 // side, rows // 512)), 4, 3)
    count = tiles(outputs, outs) * tiles(inputs, ins)
    if side == 3 and outs <= 64 and ins <= 64:
        return WeightTile(64, outs, ins, "rows", max(1, min(8 // count, rows // 512)), 4, 3)
    splits = max(1, min(64 // (count * side**2), rows // 1024))
    return WeightTile(64, outs, ins, "places", splits, 4, 3)


def tiles(size: int, tile: int) -> int:
    """Return the number of tiles that cover a size."""
    return -(-size // tile)


def power_of_two(size: int) -> int:
    """Return the least power of two that is not below a size."""
    return 1 << max(size - 1, 0).bit_length()
