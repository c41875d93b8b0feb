"""The GPU's kernels against plain torch: run by `test_kernels.py`, in Triton's interpreter.

``python -m pytest tests/federated/interpreted_kernels.py`` runs the same tests on a GPU where
TRITON_INTERPRET is not set. The interpreter multiplies float32 exactly. It cannot multiply
bfloat16, so float16 stands for the precisions of 16 bits: the layers choose the same kernels.
"""

import copy
import os

import pytest
import torch
from torch import nn

from freshband.federated.clients._base import ParameterLayout
from freshband.federated.clients.gpu._layers import Arena, Conv, Norm, Weights
from freshband.federated.clients.gpu._stacking import stack

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
ROOM, CLIENTS, IMAGES, LR = 3, 2, 3, 0.05
PRECISIONS = {torch.float32: 2e-6 if INTERPRETED else 2e-3, torch.float16: 4e-3}

both_precisions = pytest.mark.parametrize("dtype", PRECISIONS, ids=["float32", "float16"])


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def _arena(rows, width, dtype, images=IMAGES):
    return Arena(
        rows=rows.to(DEVICE),
        low=torch.zeros((len(rows), width), dtype=dtype, device=DEVICE),
        count=torch.tensor([CLIENTS], dtype=torch.int32, device=DEVICE),
        lr=torch.tensor([LR], device=DEVICE),
        images=images,
    )


def _rounded(numbers, dtype):
    """Return numbers of a precision in float64, to compute with on the CPU."""
    return numbers.to(dtype).double().cpu()


def _agree(found, wanted, dtype):
    wanted = wanted.detach()
    off = (found.double().cpu() - wanted).norm() / wanted.norm()
    assert off < PRECISIONS[dtype], f"off by {off:.1e} of the norm"


def _images(*shape):
    return torch.randn((ROOM, IMAGES, *shape))


CONVOLUTIONS = [  # inputs, outputs, side, stride, height, width, bias
    (3, 5, 3, 1, 6, 5, True),
    (16, 16, 3, 1, 4, 8, True),  # in 16 bits two pixels at a time
    (24, 16, 3, 1, 4, 8, False),  # not so: 24 is no power of two
    (16, 32, 1, 1, 4, 4, False),
    (8, 40, 3, 2, 6, 6, False),
    (8, 40, 1, 2, 5, 5, True),
    (130, 20, 3, 1, 2, 2, True),  # in 16 bits one place of the kernel at a time
    (20, 130, 1, 1, 1, 1, True),  # dense
]


@both_precisions
@pytest.mark.parametrize("sizes", CONVOLUTIONS, ids=str)
def test_convolutions_are_those_of_torch(sizes, dtype):
    inputs, outputs, side, stride, height, width, bias = sizes
    count = outputs * inputs * side**2
    size = count + outputs * bias
    rows = 0.2 * torch.randn((ROOM, size))
    arena = _arena(rows.clone(), -(-size // 32) * 32, dtype)
    layer = Conv(Weights(0, 0, size), bias, inputs, outputs, side, stride, height, width)
    layer.relu = bias
    layer.masks = True
    layer.weights.load(arena)
    x = _images(height, width, inputs)
    y = layer.forward(arena, x.to(DEVICE, dtype), keep=True)
    g, extra = torch.randn(y.shape), torch.randn(x.shape)
    gx = layer.back(arena, g.to(DEVICE, dtype), True, extra.to(DEVICE, dtype))
    for client in range(CLIENTS):
        given = _rounded(x[client], dtype).requires_grad_()
        row = _rounded(rows[client], dtype).requires_grad_()
        kernel = row[:count].view(outputs, side, side, inputs).permute(0, 3, 1, 2)
        shift = row[count:] if bias else None
        wanted = nn.functional.conv2d(given.movedim(-1, 1), kernel, shift, stride, side // 2)
        wanted = (wanted.relu() if bias else wanted).movedim(1, -1)
        _agree(y[client], wanted, dtype)
        back = torch.autograd.grad(wanted, (given, row), _rounded(g[client], dtype))
        _agree(gx[client], back[0] * (given > 0) + _rounded(extra[client], dtype), dtype)
        _agree((rows[client] - arena.rows[client].cpu()) / LR, back[1], dtype)
    assert torch.equal(arena.rows[CLIENTS:].cpu(), rows[CLIENTS:])


@both_precisions
@pytest.mark.parametrize("relu", [True, False], ids=["relu", "linear"])
def test_pooling_is_that_of_torch(relu, dtype):
    inputs, outputs, height, width = 5, 6, 8, 4
    size = outputs * inputs * 9
    rows = 0.2 * torch.randn((ROOM, size))
    arena = _arena(rows.clone(), -(-size // 32) * 32, dtype)
    layer = Conv(Weights(0, 0, size), False, inputs, outputs, 3, 1, height, width, relu, pool=True)
    layer.weights.load(arena)
    x = _images(height, width, inputs)
    y = layer.forward(arena, x.to(DEVICE, dtype), keep=True)
    g = torch.randn(y.shape)
    gx = layer.back(arena, g.to(DEVICE, dtype), True)
    for client in range(CLIENTS):
        given = _rounded(x[client], dtype).requires_grad_()
        kernel = _rounded(rows[client], dtype).view(outputs, 3, 3, inputs).permute(0, 3, 1, 2)
        wanted = nn.functional.conv2d(given.movedim(-1, 1), kernel, padding=1)
        wanted = nn.functional.max_pool2d(wanted, 2).movedim(1, -1)
        wanted = wanted.relu() if relu else wanted
        _agree(y[client], wanted, dtype)
        _agree(gx[client], torch.autograd.grad(wanted, given, _rounded(g[client], dtype))[0], dtype)


@both_precisions
@pytest.mark.parametrize(
    ("channels", "groups", "height", "relu", "shortcut"),
    [(8, 2, 3, True, True), (16, 4, 5, False, True), (4, 1, 2, True, False)],
)
def test_norms_are_those_of_torch(channels, groups, height, relu, shortcut, dtype):
    rows = torch.randn((ROOM, 2 * channels))
    arena = _arena(rows.clone(), 64, dtype)
    layer = Norm(Weights(0, 0, 2 * channels), channels, groups, 1e-5, relu)
    layer.weights.load(arena)
    x, around = _images(height, height, channels), _images(height, height, channels)
    added = around.to(DEVICE, dtype) if shortcut else None
    y = layer.forward(arena, x.to(DEVICE, dtype), True, added)
    g = torch.randn(y.shape)
    passed = torch.empty_like(y) if shortcut else None
    gx = layer.back(arena, g.to(DEVICE, dtype), True, passed)
    for client in range(CLIENTS):
        given = _rounded(x[client], dtype).requires_grad_()
        other = _rounded(around[client], dtype).requires_grad_()
        row = _rounded(rows[client], dtype).requires_grad_()
        wanted = nn.functional.group_norm(
            given.movedim(-1, 1), groups, row[:channels], row[channels:], 1e-5
        ).movedim(1, -1)
        wanted = wanted + other if shortcut else wanted + 0 * other
        wanted = wanted.relu() if relu else wanted
        _agree(y[client], wanted, dtype)
        back = torch.autograd.grad(wanted, (given, other, row), _rounded(g[client], dtype))
        _agree(gx[client], back[0], dtype)
        if passed is not None:
            _agree(passed[client], back[1], dtype)
        _agree((rows[client] - arena.rows[client].cpu()) / LR, back[2], dtype)


class _Own(nn.Module):
    """A user's model: a class of its own, with sums and functions in its forward."""

    def __init__(self):
        super().__init__()
        self.begin = nn.Conv2d(2, 8, 3, padding=1, bias=False)
        self.before = nn.GroupNorm(2, 8)
        self.inner = nn.Conv2d(8, 8, 1)
        self.halve = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.last = nn.GroupNorm(4, 16)
        self.around = nn.Conv2d(8, 16, 1, stride=2)
        self.mean = nn.AdaptiveAvgPool2d(1)
        self.end = nn.Linear(16, 5)

    def forward(self, x):
        x = self.begin(x)
        x = nn.functional.relu(x + self.inner(self.before(x).relu()))
        x = torch.relu(self.around(x) + self.last(self.halve(x)))
        return self.end(torch.flatten(self.mean(x), 1))


def _models():
    plain = [nn.Conv2d(2, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 9, 3, padding=1)]
    plain += [nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(36, 5)]
    pooled = [nn.Conv2d(2, 16, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(16, 9, 1)]
    pooled += [nn.ReLU(), nn.Flatten(), nn.Linear(36, 20), nn.ReLU(), nn.Linear(20, 5)]
    return {
        "own": _Own(),
        "plain": nn.Sequential(*plain),
        "pooled at once": nn.Sequential(*pooled),
    }


@both_precisions
@pytest.mark.parametrize("name", _models())
def test_models_train_as_with_autograd(name, dtype):
    module, shape = _models()[name], (2, 4, 4)
    mean, std = torch.tensor([100.0, 110.0]), torch.tensor([50.0, 60.0])
    layout = ParameterLayout(module)
    model = stack(module.to(DEVICE), layout, shape, mean.tolist(), std.tolist())
    rows = layout.read(module).cpu() + 0.05 * torch.randn((ROOM, layout.size))
    arena = _arena(rows.clone(), model.width, dtype, images=3)
    pictures = torch.randint(0, 256, (20, *shape), dtype=torch.uint8)
    labels, samples = torch.randint(0, 5, (20,)), torch.randint(0, 20, (ROOM, 2, 3))
    given = [each.to(DEVICE) for each in (pictures, labels, samples)]
    model.train(arena, *given)
    tried = model.score(arena, given[0], given[2])
    images = (pictures.double() - mean.view(-1, 1, 1)) / std.view(-1, 1, 1)
    close = 1e-5 if dtype == torch.float32 and INTERPRETED else 0.1  # a bit may turn a ReLU on
    for client in range(CLIENTS):
        own = copy.deepcopy(module).double().cpu()
        layout.write(rows[client], own)
        for some in samples[client]:
            loss = nn.functional.cross_entropy(own(images[some]), labels[some])
            back = torch.autograd.grad(loss, list(own.parameters()))
            with torch.no_grad():
                for weights, gradient in zip(own.parameters(), back, strict=True):
                    weights -= LR * gradient
        moved = layout.read(own) - rows[client]
        off = (arena.rows[client].cpu() - rows[client] - moved).norm() / moved.norm()
        assert off < close
        wanted = own(images[samples[client, 0]]).detach()
        assert (tried[client].double().cpu() - wanted).norm() / wanted.norm() < close
    assert torch.equal(arena.rows[CLIENTS:].cpu(), rows[CLIENTS:])
