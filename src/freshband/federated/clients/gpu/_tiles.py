"""The sizes in which kernels cut their work: the fastest of some thirty, measured on an H200.

They were measured with every layer of cnn8 and the stages of ResNet-18. Other GPUs prefer other
tiles, but lose little with these. Sizes are returned as the constants with which a kernel is
launched.
"""

from __future__ import annotations

from typing import Literal

import torch


def conv_tile(
    columns: int, depth: int, width: int, dtype: torch.dtype, *, back: bool = False
) -> dict[str, int]:
    """Return the tile of a convolution, forward or back, from ``depth`` channels to ``columns``."""
    low = dtype != torch.float32
    large = columns == 256 if back else columns >= 256
    wide = min(256 if large and low else 128, max(16, power_of_two(columns)))
    deep = 64 if low and depth % 64 == 0 else 32
    if width == 1:  # dense layers have few rows
        return {"BM": 64, "BN": min(wide, 32), "BK": deep, "num_warps": 4, "num_stages": 4}
    rows = 256 if wide <= 32 else 128
    return {"BM": rows, "BN": wide, "BK": deep, "num_warps": 8, "num_stages": 3}


def weight_tile(
    outputs: int, inputs: int, side: int, dtype: torch.dtype, rows: int, *, paired: bool
) -> tuple[Literal["places", "rows", "pairs"], dict[str, int]]:
    """Return how the gradients of a convolution's weights are computed over ``rows`` pixels.

    With `gradients.correlate`, for one place of the convolution's kernel at a time ("places") or
    for three ("rows"), or with `gradients.correlate_pairs` ("pairs"). ``paired`` says whether the
    arrays let two neighbouring pixels be treated as one.
    """
    outs = min(128, max(16, power_of_two(outputs)))
    ins = min(128, max(16, power_of_two(inputs)))
    tile = {"BM": 64, "BO": outs, "BI": ins, "num_warps": 4, "num_stages": 3}
    if dtype == torch.float32:  # as few warps as it takes to avoid a unit that cannot transpose
        wide = side == 3 and ins == 128
        outs, ins = (min(outs, 32), ins) if wide else (min(outs, 64), min(ins, 32))
        tile |= {"BM": 32, "BO": outs, "BI": ins}
        tile["num_warps"] = 4 if wide else max(1, outs * ins // 1024)
        count = tiles(outputs, outs) * tiles(inputs, ins) * side
        tile["SPLITS"] = max(1, min(64 // count, rows // 256))
        return "rows" if side == 3 else "places", tile
    if paired and outputs in (16, 32) and ins <= 32:
        return "pairs", tile | {"SPLITS": max(1, min(24 // side, rows // 512))}
    count = tiles(outputs, outs) * tiles(inputs, ins)
    if side == 3 and outs <= 64 and ins <= 64:
        return "rows", tile | {"SPLITS": max(1, min(8 // count, rows // 512))}
    return "places", tile | {"SPLITS": max(1, min(64 // (count * side**2), rows // 1024))}


def tiles(size: int, tile: int) -> int:
    """Return the number of tiles that cover a size."""
    return -(-size // tile)


def power_of_two(size: int) -> int:
    """Return the least power of two that is not below a size."""
    return 1 << max(size - 1, 0).bit_length()
