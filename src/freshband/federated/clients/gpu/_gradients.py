# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# ruff: noqa: N803, N806, SIM102
# Triton's language only looks like Python: pointers and tensors have no types, names in capitals
# are constants of the compilation, and an ``if`` on those must stand alone.
"""Triton kernels that compute a layer's gradients for many clients at once, and move its weights.

Arrays lie as in `freshband.federated.clients.gpu._kernels`, of which these kernels go the way back.
"""

from __future__ import annotations

from freshband.federated.clients.gpu._kernels import (
    jit,
    load_pixels,
    load_weights,
    per_channel,
    tile_of_program,
    tl,
)


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
    _, m, n = tile_of_program(CI, BM, BN)
    inside = m < M
    image = m // (H * W)
    bottom = m % (H * W) // W + KS // 2
    right = m % W + KS // 2
    HO: tl.constexpr = (H + STRIDE - 1) // STRIDE
    WO: tl.constexpr = (W + STRIDE - 1) // STRIDE
    DEPTH: tl.constexpr = (CO + BK - 1) // BK
    g += client * (M // (H * W)) * (HO * WO * CO)
    w += client * stride_w
    acc = tl.zeros((BM, BN), tl.float32)
    for turn in range(KS * KS * DEPTH):
        tap = turn // DEPTH
        up = bottom - tap // KS
        over = right - tap % KS
        ks = turn % DEPTH * BK + tl.arange(0, BK)
        seen = inside & (up >= 0) & (up < HO * STRIDE) & (over >= 0) & (over < WO * STRIDE)
        if STRIDE > 1:
            seen = seen & (up % STRIDE == 0) & (over % STRIDE == 0)
        pixel = (image * HO + up // STRIDE) * WO + over // STRIDE
        a_at = g + pixel[:, None] * CO + ks[None, :]
        if TURNED:
            b_at = w + n[None, :] * (KS * KS * CO) + tap * CO + ks[:, None]
        else:
            b_at = w + ks[:, None] * (KS * KS * CI) + tap * CI + n[None, :]
        a = load_pixels(a_at, seen, ks, CO, BK)
        weights = load_weights(b_at, ks, n, CO, CI, BK, BN)
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
    ones = tl.full((BM, 16), 1.0, tl.float32).to(g.dtype.element_ty)
    for begin in range(first, last, BM):
        m = begin + tl.arange(0, BM)
        inside = m < M
        top = m % (HO * WO) // WO * STRIDE - PAD + dy
        left = m % WO * STRIDE - PAD + dx
        pixel = (m // (HO * WO) * H + top) * W + left
        row = inside & (top >= 0) & (top < H)
        across = tl.trans(load_pixels(g + m[:, None] * CO + o[None, :], inside, o, CO, BO))
        at = x + pixel[:, None] * XS + i[None, :]
        value = load_pixels(at, row & (left >= 0) & (left < W), i, CI, BI)
        acc0 = tl.dot(across, value, acc0, input_precision="tf32")
        if TRIPLE:
            value = load_pixels(at + XS, row & (left + 1 >= 0) & (left + 1 < W), i, CI, BI)
            acc1 = tl.dot(across, value, acc1, input_precision="tf32")
            value = load_pixels(at + 2 * XS, row & (left + 2 >= 0) & (left + 2 < W), i, CI, BI)
            acc2 = tl.dot(across, value, acc2, input_precision="tf32")
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
    ones = tl.full((BM, 16), 1.0, tl.float32).to(g.dtype.element_ty)
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
def _past_relu(g, y, mask, RELU: tl.constexpr):
    """Load gradients, zero where the outputs ``y`` of a ReLU are."""
    grad = tl.load(g, mask=mask, other=0.0).to(tl.float32)
    if RELU:
        grad = tl.where(tl.load(y, mask=mask, other=0.0) > 0, grad, 0.0)
    return grad


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
    mean = per_channel(mean, GROUPS, C)
    scale = per_channel(scale, GROUPS, C)
    gain = tl.load(w + client * stride_w + c).to(tl.float32)
    total = tl.zeros((C,), tl.float32)
    along = tl.zeros((C,), tl.float32)
    for begin in range(0, PIXELS, BM):
        m = begin + tl.arange(0, BM)
        mask = (m < PIXELS)[:, None]
        at = first + m[:, None] * C + c[None, :]
        grad = _past_relu(g + at, y + at, mask, RELU)
        value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        value = (value - mean[None, :]) * scale[None, :]
        total += tl.sum(grad, axis=0)
        along += tl.sum(grad * value, axis=0)
    tl.store(parts + image * (2 * C) + c, along)
    tl.store(parts + image * (2 * C) + C + c, total)
    size: tl.constexpr = PIXELS * width
    flat = tl.sum(tl.reshape(total * gain, (GROUPS, width)), axis=1) / size
    tilt = tl.sum(tl.reshape(along * gain, (GROUPS, width)), axis=1) / size
    flat = per_channel(flat, GROUPS, C)
    tilt = per_channel(tilt, GROUPS, C)
    for begin in range(0, PIXELS, BM):
        m = begin + tl.arange(0, BM)
        mask = (m < PIXELS)[:, None]
        at = first + m[:, None] * C + c[None, :]
        grad = _past_relu(g + at, y + at, mask, RELU)
        if EXTRA:
            tl.store(gextra + at, grad, mask=mask)
        value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        value = (value - mean[None, :]) * scale[None, :]
        value = (grad * gain[None, :] - flat[None, :] - value * tilt[None, :]) * scale[None, :]
        tl.store(gx + at, value, mask=mask)
