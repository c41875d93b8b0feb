# mypy: ignore-errors
# ruff: noqa: N803, N806, SIM102
# Triton's language only looks like Python: pointers and tensors have no types, capitals are what is
# known when a kernel is compiled, and an ``if`` on those must stand alone.
"""Kernels of many clients' layers at once, in Triton, which the layers beside this file launch.

All clients' activations lie in one array, client by client, image by image, pixel by pixel, the
channels last, so a convolution is a matrix product per client whose rows are pixels: the kernels
below gather its left side while they multiply, and one axis of the grid counts the clients.
Programs of clients beyond ``count``, which they read from the device, end at once: one recorded
graph serves every number of clients up to its room.

A dense layer is a convolution of 1×1 pixels. Sums are float32, in a fixed order without atomics,
so a run repeats bit by bit.
"""

from __future__ import annotations

try:
    import triton
    import triton.language as tl

    jit = triton.jit
except ImportError:  # without a GPU the module must still import; nothing is ever launched

    def jit(function=None, **options):
        """Leave a kernel as it is."""
        return jit if function is None else function


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
    COLS: tl.constexpr = (CO + BN - 1) // BN
    DEPTH: tl.constexpr = (CI + BK - 1) // BK
    tile = tl.program_id(0)
    m = tile // COLS * BM + tl.arange(0, BM)
    n = tile % COLS * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    inside = m < M
    top = m % (HO * WO) // WO * STRIDE - PAD
    left = m % WO * STRIDE - PAD
    x += client * (M // (HO * WO)) * (H * W * XS)
    w += client * stride_w
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
        if CI % BK == 0:
            a = tl.load(a_at, mask=seen[:, None], other=0.0)
            if CO % BN == 0:
                weights = tl.load(b_at)
            else:
                weights = tl.load(b_at, mask=(n < CO)[None, :], other=0.0)
        else:
            a = tl.load(a_at, mask=seen[:, None] & (ks < CI)[None, :], other=0.0)
            weights = tl.load(b_at, mask=(n < CO)[None, :] & (ks < CI)[:, None], other=0.0)
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
        out_m = tile // COLS * (BM // 4) + tl.arange(0, BM // 4)
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
def convolve_back(
    g, w, x, extra, gx, count, stride_w, M,
    H: tl.constexpr, W: tl.constexpr, CI: tl.constexpr, CO: tl.constexpr, KS: tl.constexpr,
    STRIDE: tl.constexpr, MASK: tl.constexpr, EXTRA: tl.constexpr, TURNED: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Take gradients from a convolution's outputs back to its inputs.

    With ``MASK`` only where the inputs ``x`` are positive: the step through the ReLU before. With
    ``EXTRA`` on top of other gradients of the same inputs. With ``TURNED`` weights lie (inputs,
    places, outputs), the only order in which the matrix unit takes float32.
    """
    client = tl.program_id(1).to(tl.int64)
    if client >= tl.load(count):
        return
    PAD: tl.constexpr = KS // 2
    HO: tl.constexpr = (H + STRIDE - 1) // STRIDE
    WO: tl.constexpr = (W + STRIDE - 1) // STRIDE
    COLS: tl.constexpr = (CI + BN - 1) // BN
    DEPTH: tl.constexpr = (CO + BK - 1) // BK
    tile = tl.program_id(0)
    m = tile // COLS * BM + tl.arange(0, BM)
    n = tile % COLS * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    inside = m < M
    image = m // (H * W)
    bottom = m % (H * W) // W + PAD
    right = m % W + PAD
    g += client * (M // (H * W)) * (HO * WO * CO)
    w += client * stride_w
    acc = tl.zeros((BM, BN), tl.float32)
    for turn in range(KS * KS * DEPTH):
        tap = turn // DEPTH
        up = bottom - tap // KS
        over = right - tap % KS
        ks = turn % DEPTH * BK + k
        seen = inside & (up >= 0) & (up < HO * STRIDE) & (over >= 0) & (over < WO * STRIDE)
        if STRIDE > 1:
            seen = seen & (up % STRIDE == 0) & (over % STRIDE == 0)
        pixel = (image * HO + up // STRIDE) * WO + over // STRIDE
        a_at = g + pixel[:, None] * CO + ks[None, :]
        if TURNED:
            b_at = w + n[None, :] * (KS * KS * CO) + tap * CO + ks[:, None]
        else:
            b_at = w + ks[:, None] * (KS * KS * CI) + tap * CI + n[None, :]
        if CO % BK == 0:
            a = tl.load(a_at, mask=seen[:, None], other=0.0)
            if CI % BN == 0:
                weights = tl.load(b_at)
            else:
                weights = tl.load(b_at, mask=(n < CI)[None, :], other=0.0)
        else:
            a = tl.load(a_at, mask=seen[:, None] & (ks < CO)[None, :], other=0.0)
            weights = tl.load(b_at, mask=(n < CI)[None, :] & (ks < CO)[:, None], other=0.0)
        acc = tl.dot(a, weights, acc, input_precision="tf32")
    at = client * M * CI + m[:, None] * CI + n[None, :]
    mask = inside[:, None] & (n < CI)[None, :]
    if MASK:
        acc = tl.where(tl.load(x + at, mask=mask, other=0.0) > 0, acc, 0.0)
    if EXTRA:
        acc += tl.load(extra + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(gx + at, acc, mask=mask)


@jit
def _correlate(
    x, g, first, last, M, dy, dx, o, i,
    H: tl.constexpr, W: tl.constexpr, CI: tl.constexpr, XS: tl.constexpr, CO: tl.constexpr,
    KS: tl.constexpr, STRIDE: tl.constexpr, BIAS: tl.constexpr, TRIPLE: tl.constexpr,
    BM: tl.constexpr, BO: tl.constexpr, BI: tl.constexpr,
):  # fmt: skip
    """Sum gradient × input over pixels, for one place of the kernel or three in a row."""
    PAD: tl.constexpr = KS // 2
    HO: tl.constexpr = (H + STRIDE - 1) // STRIDE
    WO: tl.constexpr = (W + STRIDE - 1) // STRIDE
    acc0 = tl.zeros((BO, BI), tl.float32)
    acc1 = acc0
    acc2 = acc0
    sums = tl.zeros((BO, 16), tl.float32)
    ones = tl.full((BM, 16), 1.0, g.dtype.element_ty)
    for begin in range(first, last, BM):
        m = begin + tl.arange(0, BM)
        inside = m < M
        top = m % (HO * WO) // WO * STRIDE - PAD + dy
        left = m % WO * STRIDE - PAD + dx
        pixel = (m // (HO * WO) * H + top) * W + left
        row = inside & (top >= 0) & (top < H)
        if CO % BO == 0:
            grads = tl.load(g + m[:, None] * CO + o[None, :], mask=inside[:, None], other=0.0)
        else:
            grads = tl.load(
                g + m[:, None] * CO + o[None, :],
                mask=inside[:, None] & (o < CO)[None, :], other=0.0,
            )  # fmt: skip
        across = tl.trans(grads)
        at = x + pixel[:, None] * XS + i[None, :]
        seen = (row & (left >= 0) & (left < W))[:, None]
        if CI % BI != 0:
            seen = seen & (i < CI)[None, :]
        acc0 = tl.dot(across, tl.load(at, mask=seen, other=0.0), acc0, input_precision="tf32")
        if TRIPLE:
            seen = (row & (left + 1 >= 0) & (left + 1 < W))[:, None]
            if CI % BI != 0:
                seen = seen & (i < CI)[None, :]
            acc1 = tl.dot(
                across, tl.load(at + XS, mask=seen, other=0.0), acc1, input_precision="tf32"
            )
            seen = (row & (left + 2 >= 0) & (left + 2 < W))[:, None]
            if CI % BI != 0:
                seen = seen & (i < CI)[None, :]
            acc2 = tl.dot(
                across, tl.load(at + 2 * XS, mask=seen, other=0.0), acc2, input_precision="tf32"
            )
        if BIAS:
            sums = tl.dot(across, ones, sums, input_precision="tf32")
    return acc0, acc1, acc2, tl.max(sums, axis=1)  # sixteen times the same column


@jit(do_not_specialize=["room"])
def correlate(
    x, g, parts, count, M, room, span,
    H: tl.constexpr, W: tl.constexpr, CI: tl.constexpr, XS: tl.constexpr, CO: tl.constexpr,
    KS: tl.constexpr, STRIDE: tl.constexpr, BIAS: tl.constexpr, TRIPLE: tl.constexpr,
    SPLITS: tl.constexpr, BM: tl.constexpr, BO: tl.constexpr, BI: tl.constexpr,
):  # fmt: skip
    """Compute gradients of a convolution's weights, the sums over pixels in SPLITS parts.

    A client's part is ``span`` numbers: its weights' gradients, then its biases'.
    """
    client = tl.program_id(1).to(tl.int64)
    if client >= tl.load(count):
        return
    HO: tl.constexpr = (H + STRIDE - 1) // STRIDE
    WO: tl.constexpr = (W + STRIDE - 1) // STRIDE
    TILES_I: tl.constexpr = (CI + BI - 1) // BI
    PLACES: tl.constexpr = KS if TRIPLE else KS * KS
    split = tl.program_id(2)
    tile = tl.program_id(0)
    place = tile % PLACES
    tile_i = tile // PLACES % TILES_I
    tile_o = tile // PLACES // TILES_I
    o = tile_o * BO + tl.arange(0, BO)
    i = tile_i * BI + tl.arange(0, BI)
    if TRIPLE:
        dy = place
        dx = 0
    else:
        dy = place // KS
        dx = place % KS
    x += client * (M // (HO * WO)) * (H * W * XS)
    g += client * M * CO
    share = tl.cdiv(tl.cdiv(M, BM), SPLITS) * BM
    first = split * share
    last = tl.minimum(first + share, M)
    parts += (split * room + client) * span
    at = parts + o[:, None] * (KS * KS * CI) + (dy * KS + dx) * CI + i[None, :]
    mask = (o < CO)[:, None] & (i < CI)[None, :]
    if BIAS:
        if (place == 0) & (tile_i == 0):
            acc0, acc1, acc2, sums = _correlate(
                x, g, first, last, M, dy, dx, o, i,
                H, W, CI, XS, CO, KS, STRIDE, True, TRIPLE, BM, BO, BI,
            )  # fmt: skip
            tl.store(parts + CO * KS * KS * CI + o, sums, mask=o < CO)
        else:
            acc0, acc1, acc2, sums = _correlate(
                x, g, first, last, M, dy, dx, o, i,
                H, W, CI, XS, CO, KS, STRIDE, False, TRIPLE, BM, BO, BI,
            )  # fmt: skip
    else:
        acc0, acc1, acc2, sums = _correlate(
            x, g, first, last, M, dy, dx, o, i,
            H, W, CI, XS, CO, KS, STRIDE, False, TRIPLE, BM, BO, BI,
        )  # fmt: skip
    tl.store(at, acc0, mask=mask)
    if TRIPLE:
        tl.store(at + CI, acc1, mask=mask)
        tl.store(at + 2 * CI, acc2, mask=mask)


@jit(do_not_specialize=["room"])
def correlate_pairs(
    x, g, parts, count, M, room, span,
    H: tl.constexpr, W: tl.constexpr, CI: tl.constexpr, XS: tl.constexpr, CO: tl.constexpr,
    KS: tl.constexpr, BIAS: tl.constexpr, SPLITS: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """Do the same for few channels, which alone would leave most of the matrix unit idle.

    Gradients of two neighbouring pixels make one row of 2 CO numbers, the KS + 1 inputs that these
    two see make one of (KS + 1) XS, and the product holds all places of a kernel's row: of the
    left pixel in its upper half, of the right one, one place further on, in the lower. Both halves
    are parts of their own, so there are 2 SPLITS.
    """
    client = tl.program_id(1).to(tl.int64)
    if client >= tl.load(count):
        return
    PAD: tl.constexpr = KS // 2
    split = tl.program_id(2)
    dy = tl.program_id(0)
    rows = tl.arange(0, 2 * CO)
    cols = tl.arange(0, (KS + 1) * XS)
    x += client * M * XS
    g += client * M * CO
    half = M // 2
    share = tl.cdiv(tl.cdiv(half, BM), SPLITS) * BM
    first = split * share
    last = tl.minimum(first + share, half)
    acc = tl.zeros((2 * CO, (KS + 1) * XS), tl.float32)
    sums = tl.zeros((2 * CO, 16), tl.float32)
    ones = tl.full((BM, 16), 1.0, g.dtype.element_ty)
    for begin in range(first, last, BM):
        pair = begin + tl.arange(0, BM)
        inside = pair < half
        m = pair * 2
        top = m % (H * W) // W - PAD + dy
        left = m % W - PAD
        pixel = (m // (H * W) * H + top) * W + left
        across = left[:, None] + (cols // XS)[None, :]
        seen = (inside & (top >= 0) & (top < H))[:, None] & (across >= 0) & (across < W)
        grads = tl.load(
            g + pair[:, None] * (2 * CO) + rows[None, :], mask=inside[:, None], other=0.0
        )
        values = tl.load(x + pixel[:, None] * XS + cols[None, :], mask=seen, other=0.0)
        acc = tl.dot(tl.trans(grads), values, acc, input_precision="tf32")
        if BIAS:
            sums = tl.dot(tl.trans(grads), ones, sums, input_precision="tf32")
    side = rows // CO
    o = rows % CO
    place = (cols // XS)[None, :] - side[:, None]
    i = cols % XS
    part = parts + ((2 * split + side) * room + client) * span
    at = part[:, None] + o[:, None] * (KS * KS * CI) + (dy * KS + place) * CI + i[None, :]
    tl.store(at, acc, mask=(place >= 0) & (place < KS) & (i < CI)[None, :])
    if BIAS:
        if dy == 0:
            tl.store(part + CO * KS * KS * CI + o, tl.max(sums, axis=1))


@jit(do_not_specialize=["room"])
def descend(
    parts, rows, low, lr, count, room, stride, low_stride, size,
    SPLITS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Take a gradient step: add the parts up, move the weights, round them to the low precision."""
    client = tl.program_id(1).to(tl.int64)
    if client >= tl.load(count):
        return
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < size
    total = tl.zeros((BLOCK,), tl.float32)
    for split in tl.static_range(SPLITS):
        total += tl.load(parts + (split * room + client) * size + at, mask=mask, other=0.0)
    here = client * stride + at
    moved = tl.load(rows + here, mask=mask, other=0.0) - tl.load(lr) * total
    tl.store(rows + here, moved, mask=mask)
    tl.store(low + client * low_stride + at, moved, mask=mask)


@jit
def unpool(
    g, code, out, count, M,
    W: tl.constexpr, C: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Give each pooled gradient to the pixel that won; W is the width before pooling."""
    client = tl.program_id(1).to(tl.int64)
    if client >= tl.load(count):
        return
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    c = tl.arange(0, BC)
    half: tl.constexpr = W // 2
    at = client * M * C + m[:, None] * C + c[None, :]
    mask = (m < M)[:, None] & (c < C)[None, :]
    value = tl.load(g + at, mask=mask, other=0.0)
    won = tl.load(code + at, mask=mask, other=4)
    first = m // half * 2 * W + m % half * 2
    to = out + client * M * 4 * C + first[:, None] * C + c[None, :]
    tl.store(to, tl.where(won == 0, value, 0.0), mask=mask)
    tl.store(to + C, tl.where(won == 1, value, 0.0), mask=mask)
    tl.store(to + W * C, tl.where(won == 2, value, 0.0), mask=mask)
    tl.store(to + W * C + C, tl.where(won == 3, value, 0.0), mask=mask)


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
    spread = tl.sum(tl.reshape(square, (GROUPS, width)), axis=1) / (PIXELS * width) - mean * mean
    scale = 1.0 / tl.sqrt(tl.maximum(spread, 0.0) + eps)
    group = tl.arange(0, GROUPS)
    tl.store(stats + image * (2 * GROUPS) + group, mean)
    tl.store(stats + image * (2 * GROUPS) + GROUPS + group, scale)
    mean = tl.reshape(tl.broadcast_to(mean[:, None], (GROUPS, width)), (C,))
    scale = tl.reshape(tl.broadcast_to(scale[:, None], (GROUPS, width)), (C,))
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


@jit
def normalise_back(
    g, x, y, w, stats, gx, gextra, parts, count, stride_w, images,
    PIXELS: tl.constexpr, C: tl.constexpr, GROUPS: tl.constexpr, RELU: tl.constexpr,
    EXTRA: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """Go back through `normalise`: one image's gradients, and its part of gain's and shift's."""
    client = tl.program_id(1).to(tl.int64)
    if client >= tl.load(count):
        return
    image = client * images + tl.program_id(0)
    c = tl.arange(0, C)
    width: tl.constexpr = C // GROUPS
    first = image * (PIXELS * C)
    group = tl.arange(0, GROUPS)
    mean = tl.load(stats + image * (2 * GROUPS) + group)
    scale = tl.load(stats + image * (2 * GROUPS) + GROUPS + group)
    mean = tl.reshape(tl.broadcast_to(mean[:, None], (GROUPS, width)), (C,))
    scale = tl.reshape(tl.broadcast_to(scale[:, None], (GROUPS, width)), (C,))
    gain = tl.load(w + client * stride_w + c).to(tl.float32)
    total = tl.zeros((C,), tl.float32)
    along = tl.zeros((C,), tl.float32)
    for begin in range(0, PIXELS, BM):
        m = begin + tl.arange(0, BM)
        mask = (m < PIXELS)[:, None]
        at = first + m[:, None] * C + c[None, :]
        grad = tl.load(g + at, mask=mask, other=0.0).to(tl.float32)
        if RELU:
            grad = tl.where(tl.load(y + at, mask=mask, other=0.0) > 0, grad, 0.0)
        value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        value = (value - mean[None, :]) * scale[None, :]
        total += tl.sum(grad, axis=0)
        along += tl.sum(grad * value, axis=0)
    tl.store(parts + image * (2 * C) + c, along)
    tl.store(parts + image * (2 * C) + C + c, total)
    size: tl.constexpr = PIXELS * width
    flat = tl.sum(tl.reshape(total * gain, (GROUPS, width)), axis=1) / size
    tilt = tl.sum(tl.reshape(along * gain, (GROUPS, width)), axis=1) / size
    flat = tl.reshape(tl.broadcast_to(flat[:, None], (GROUPS, width)), (C,))
    tilt = tl.reshape(tl.broadcast_to(tilt[:, None], (GROUPS, width)), (C,))
    for begin in range(0, PIXELS, BM):
        m = begin + tl.arange(0, BM)
        mask = (m < PIXELS)[:, None]
        at = first + m[:, None] * C + c[None, :]
        grad = tl.load(g + at, mask=mask, other=0.0).to(tl.float32)
        if RELU:
            grad = tl.where(tl.load(y + at, mask=mask, other=0.0) > 0, grad, 0.0)
        if EXTRA:
            tl.store(gextra + at, grad, mask=mask)
        value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        value = (value - mean[None, :]) * scale[None, :]
        value = (grad * gain[None, :] - flat[None, :] - value * tilt[None, :]) * scale[None, :]
        tl.store(gx + at, value, mask=mask)
