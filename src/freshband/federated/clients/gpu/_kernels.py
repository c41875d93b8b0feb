# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# ruff: noqa: N803, N806
# Triton's language only looks like Python: pointers and tensors have no types, and names in
# capitals are constants of the compilation.
"""Triton kernels that compute a layer of many clients at once, forward.

The activations of all clients lie in one array, client by client, image by image, pixel by pixel,
channels last. So a convolution is a matrix product per client whose rows are pixels: the kernels
gather its left side while they multiply, and one axis of the grid counts the clients. Programs of
clients beyond ``count``, which they read from the device, end at once: one recorded graph serves
every number of clients up to its room.

A dense layer is a convolution of 1×1 pixels. Sums are float32, in a fixed order without atomics, so
results repeat bit for bit.
"""

from __future__ import annotations

from typing import Any

__all__ = ["convolve", "convolve_images", "gather_patches", "jit", "normalise", "tl"]

try:
    import triton.language as tl
    from triton import jit
except ImportError:  # without Triton the module must still import; nothing is ever launched
    tl = None

    def jit(function: Any = None, **options: Any) -> Any:
        """Leave a kernel as it is."""
        return jit if function is None else function


@jit
def load_pixels(at, seen, column, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """Load a tile with a row per pixel: zeros for pixels not seen and columns beyond SIZE."""
    if SIZE % BLOCK == 0:
        tile = tl.load(at, mask=seen[:, None], other=0.0)
    else:
        tile = tl.load(at, mask=seen[:, None] & (column < SIZE)[None, :], other=0.0)
    return tile


@jit
def load_weights(
    at, row, column,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Load a tile of weights: zeros beyond ROWS and COLUMNS."""
    if ROWS % BR == 0:
        if COLUMNS % BC == 0:
            tile = tl.load(at)
        else:
            tile = tl.load(at, mask=(column < COLUMNS)[None, :], other=0.0)
    else:
        tile = tl.load(at, mask=(row < ROWS)[:, None] & (column < COLUMNS)[None, :], other=0.0)
    return tile


@jit
def tile_of_program(COLUMNS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Return which row of tiles a program computes, and the tile's rows and columns."""
    TILES: tl.constexpr = (COLUMNS + BN - 1) // BN
    tile = tl.program_id(0)
    row = tile // TILES
    return row, row * BM + tl.arange(0, BM), tile % TILES * BN + tl.arange(0, BN)


@jit
def per_channel(value, GROUPS: tl.constexpr, C: tl.constexpr):
    """Give each of C channels the number of its group."""
    return tl.reshape(tl.broadcast_to(value[:, None], (GROUPS, C // GROUPS)), (C,))


@jit
def _patches(
    images, samples, mean, std, rows, client, step,
    STEPS: tl.constexpr, BATCH: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    KS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Read pixels of a batch, normalised, each with its KS×KS surroundings as COLS numbers."""
    PAD: tl.constexpr = KS // 2
    inside = rows < BATCH * H * W
    sample = tl.load(
        samples + (client * STEPS + step) * BATCH + rows // (H * W), mask=inside, other=0
    )
    col = tl.arange(0, COLS)
    channel = col % C
    y = (rows % (H * W) // W)[:, None] + (col // (C * KS))[None, :] - PAD
    x = (rows % W)[:, None] + (col // C % KS)[None, :] - PAD
    seen = (y >= 0) & (y < H) & (x >= 0) & (x < W) & (col < C * KS * KS)[None, :]
    at = sample[:, None] * (C * H * W) + channel[None, :] * (H * W) + y * W + x
    value = tl.load(images + at, mask=seen & inside[:, None], other=0).to(tl.float32)
    value = (value - tl.load(mean + channel)[None, :]) / tl.load(std + channel)[None, :]
    return tl.where(seen, value, 0.0)


@jit(do_not_specialize=["step"])
def gather_patches(
    images, samples, mean, std, out, count, step,
    STEPS: tl.constexpr, BATCH: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    KS: tl.constexpr, COLS: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """Write each pixel of a batch, normalised, with its surroundings."""
    client = tl.program_id(1).to(tl.int64)
    if client >= tl.load(count):
        return
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    value = _patches(images, samples, mean, std, m, client, step, STEPS, BATCH, C, H, W, KS, COLS)
    at = client * (BATCH * H * W * COLS) + m[:, None] * COLS + tl.arange(0, COLS)[None, :]
    tl.store(out + at, value, mask=(m < BATCH * H * W)[:, None])


@jit(do_not_specialize=["step"])
def convolve_images(
    images, samples, mean, std, out, w, b, y, count, stride_w, step,
    STEPS: tl.constexpr, BATCH: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    KS: tl.constexpr, COLS: tl.constexpr, CO: tl.constexpr, BIAS: tl.constexpr,
    RELU: tl.constexpr, KEEP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Do the same and the first convolution with it; what was read is written only to ``KEEP``."""
    client = tl.program_id(1).to(tl.int64)
    if client >= tl.load(count):
        return
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.arange(0, BN)
    k = tl.arange(0, COLS)
    inside = (m < BATCH * H * W)[:, None]
    value = _patches(images, samples, mean, std, m, client, step, STEPS, BATCH, C, H, W, KS, COLS)
    value = value.to(y.dtype.element_ty)
    if KEEP:
        at = client * (BATCH * H * W * COLS) + m[:, None] * COLS + k[None, :]
        tl.store(out + at, value, mask=inside)
    known = (k < KS * KS * C)[:, None] & (n < CO)[None, :]
    at = w + client * stride_w + n[None, :] * (KS * KS * C) + k[:, None]
    weights = tl.load(at, mask=known, other=0.0)
    acc = tl.dot(value, weights, input_precision="tf32")
    if BIAS:
        acc += tl.load(b + client * stride_w + n, mask=n < CO, other=0.0).to(tl.float32)[None, :]
    if RELU:
        acc = tl.maximum(acc, 0.0)
    at = client * (BATCH * H * W * CO) + m[:, None] * CO + n[None, :]
    tl.store(y + at, acc, mask=inside & (n < CO)[None, :])


@jit
def convolve(
    x, w, b, y, code, count, stride_w, M,
    H: tl.constexpr, W: tl.constexpr, CI: tl.constexpr, XS: tl.constexpr, CO: tl.constexpr,
    KS: tl.constexpr, STRIDE: tl.constexpr, BIAS: tl.constexpr, RELU: tl.constexpr,
    POOL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Convolve, with bias, then ReLU, or 2×2 max-pooling and ReLU, on the way out.

    ``code`` receives which of the four pixels won, 4 where ReLU put out all of them.
    """
    client = tl.program_id(1).to(tl.int64)
    if client >= tl.load(count):
        return
    PAD: tl.constexpr = KS // 2
    HO: tl.constexpr = (H + STRIDE - 1) // STRIDE
    WO: tl.constexpr = (W + STRIDE - 1) // STRIDE
    x += client * (M // (HO * WO)) * (H * W * XS)
    w += client * stride_w
    DEPTH: tl.constexpr = (CI + BK - 1) // BK
    row, m, n = tile_of_program(CO, BM, BN)
    k = tl.arange(0, BK)
    inside = m < M
    top = m % (HO * WO) // WO * STRIDE - PAD
    left = m % WO * STRIDE - PAD
    pixel = (m // (HO * WO) * H + top) * W + left
    acc = tl.zeros((BM, BN), tl.float32)
    for turn in range(KS * KS * DEPTH):
        tap = turn // DEPTH
        dy = tap // KS
        dx = tap % KS
        ks = turn % DEPTH * BK + k
        seen = inside & (top + dy >= 0) & (top + dy < H) & (left + dx >= 0) & (left + dx < W)
        a_at = x + (pixel + dy * W + dx)[:, None] * XS + ks[None, :]
        b_at = w + n[None, :] * (KS * KS * CI) + tap * CI + ks[:, None]
        a = load_pixels(a_at, seen, ks, CI, BK)
        weights = load_weights(b_at, ks, n, CI, CO, BK, BN)
        acc = tl.dot(a, weights, acc, input_precision="tf32")
    if BIAS:
        acc += tl.load(b + client * stride_w + n, mask=n < CO, other=0.0).to(tl.float32)[None, :]
    if POOL:
        quads = tl.reshape(acc, (BM // (2 * WO), 2, WO // 2, 2, BN))
        upper, lower = tl.split(tl.permute(quads, (0, 2, 3, 4, 1)))
        v0, v1 = tl.split(tl.permute(upper, (0, 1, 3, 2)))
        v2, v3 = tl.split(tl.permute(lower, (0, 1, 3, 2)))
        best = tl.maximum(v0, v1)
        won = tl.where(v1 > v0, 1, 0)
        won = tl.where(v2 > best, 2, won)
        best = tl.maximum(best, v2)
        won = tl.where(v3 > best, 3, won)
        best = tl.maximum(best, v3)
        if RELU:
            won = tl.where(best > 0, won, 4)
            best = tl.maximum(best, 0.0)
        best = tl.reshape(best, (BM // 4, BN))
        won = tl.reshape(won, (BM // 4, BN))
        out_m = row * (BM // 4) + tl.arange(0, BM // 4)
        at = client * (M // 4) * CO + out_m[:, None] * CO + n[None, :]
        mask = (out_m < M // 4)[:, None] & (n < CO)[None, :]
        tl.store(y + at, best, mask=mask)
        tl.store(code + at, won.to(tl.uint8), mask=mask)
    else:
        if RELU:
            acc = tl.maximum(acc, 0.0)
        at = client * M * CO + m[:, None] * CO + n[None, :]
        tl.store(y + at, acc, mask=inside[:, None] & (n < CO)[None, :])


@jit
def normalise(
    x, w, b, extra, y, stats, count, stride_w, images, eps,
    PIXELS: tl.constexpr, C: tl.constexpr, GROUPS: tl.constexpr, RELU: tl.constexpr,
    EXTRA: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """GroupNorm of one image, plus ``extra``, then ReLU; ``stats`` keeps mean and 1/deviation."""
    client = tl.program_id(1).to(tl.int64)
    if client >= tl.load(count):
        return
    image = client * images + tl.program_id(0)
    c = tl.arange(0, C)
    width: tl.constexpr = C // GROUPS
    x += image * (PIXELS * C)
    y += image * (PIXELS * C)
    extra += image * (PIXELS * C)
    total = tl.zeros((C,), tl.float32)
    square = tl.zeros((C,), tl.float32)
    for begin in range(0, PIXELS, BM):
        m = begin + tl.arange(0, BM)
        mask = (m < PIXELS)[:, None]
        value = tl.load(x + m[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
        total += tl.sum(value, axis=0)
        square += tl.sum(value * value, axis=0)
    mean = tl.sum(tl.reshape(total, (GROUPS, width)), axis=1) / (PIXELS * width)
    variance = tl.sum(tl.reshape(square, (GROUPS, width)), axis=1) / (PIXELS * width) - mean * mean
    scale = 1.0 / tl.sqrt(tl.maximum(variance, 0.0) + eps)
    group = tl.arange(0, GROUPS)
    tl.store(stats + image * (2 * GROUPS) + group, mean)
    tl.store(stats + image * (2 * GROUPS) + GROUPS + group, scale)
    mean = per_channel(mean, GROUPS, C)
    scale = per_channel(scale, GROUPS, C)
    gain = tl.load(w + client * stride_w + c).to(tl.float32) * scale
    shift = tl.load(b + client * stride_w + c).to(tl.float32) - mean * gain
    for begin in range(0, PIXELS, BM):
        m = begin + tl.arange(0, BM)
        mask = (m < PIXELS)[:, None]
        at = m[:, None] * C + c[None, :]
        value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        value = value * gain[None, :] + shift[None, :]
        if EXTRA:
            value += tl.load(extra + at, mask=mask, other=0.0).to(tl.float32)
        if RELU:
            value = tl.maximum(value, 0.0)
        tl.store(y + at, value, mask=mask)
