"""Which modules the GPU's kernels can train, and what is said about the others."""

import pytest
import torch
from torch import nn

from freshband.federated.clients._base import ParameterLayout
from freshband.federated.clients.gpu._layers import Conv, Flatten, Mean, Norm, Residual
from freshband.federated.clients.gpu._stacking import UnsupportedModuleError, stack
from freshband.federated.models import build_model

SHAPE = (3, 16, 16)


def _stack(module, shape=SHAPE):
    return stack(module, ParameterLayout(module), shape, (0.0,) * 3, (1.0,) * 3)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("cnn8", {"widths": (16, 32, 64), "hidden": 32}),
        ("resnet18", {"width": 16}),
        ("small-cnn", {"widths": (16, 16)}),
    ],
)
def test_our_models_stack(name, params):
    module = build_model(name, SHAPE, 10, seed=1, **params)
    model = _stack(module)
    assert sum(weights.size for weights in model.weights) == ParameterLayout(module).size
    assert model.width % 32 == 0


class _Own(nn.Module):
    """Built by a user: no `Sequential`, functions and sums in its forward."""

    def __init__(self, how="plain"):
        super().__init__()
        self.how = how
        self.begin = nn.Conv2d(3, 16, 3, padding=1)
        self.norm = nn.GroupNorm(4, 16)
        self.inner = nn.Conv2d(16, 16, 3, padding=1)
        self.last = nn.GroupNorm(4, 16)
        self.strided = nn.Conv2d(16, 16, 3, 2, 1)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.end = nn.Linear(16, 10)

    def forward(self, images):
        x = torch.relu(self.norm(self.begin(images)))
        if self.how == "halved":
            y = self.strided(x)
        elif self.how == "twice":
            y = self.inner(self.inner(x))
        elif self.how == "scaled":
            y = 0.1 * self.inner(x)
        elif self.how == "itself":
            y = x
        elif self.how == "lost":
            y = self.last(self.inner(x))
            self.strided(y)
        elif self.how == "decides":
            y = self.inner(x) if x.sum() > 0 else x
        else:
            y = self.last(self.inner(x))
        x = x + (y.mean((2, 3), keepdim=True) if self.how == "halved" else y)
        return self.end(torch.flatten(self.pool(x.relu()), start_dim=1))


def test_a_layer_may_be_called_anything():
    module = nn.Sequential()
    module.add_module("add", nn.Conv2d(3, 16, 3, padding=1))
    module.add_module("relu", nn.Flatten())
    module.add_module("flatten", nn.Linear(4096, 10))
    assert [type(layer) for layer in _stack(module).chain.layers] == [Conv, Flatten, Conv]


def test_a_users_model_stacks():
    module = _Own()
    model = _stack(module)
    kinds = [type(layer) for layer in model.chain.layers]
    assert kinds == [Conv, Norm, Residual, Mean, Conv]
    residual = model.chain.layers[2]
    assert residual.relu
    assert residual.last is not None  # the sum is part of the norm's kernel
    assert [type(layer) for layer in residual.body.layers] == [Conv]
    assert residual.shortcut.layers == []


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("halved", "it calls 'mean', which has no kernel"),
        ("twice", "layer 'inner' is called twice"),
        ("scaled", "it calls 'mul', which has no kernel"),
        ("itself", "it adds something else than the outputs of two layers"),
        ("lost", "the output of 'last' goes"),
        ("decides", "torch.fx cannot trace it: symbolically traced variables cannot be used"),
    ],
)
def test_what_a_users_model_may_not_do(how, why):
    with pytest.raises(UnsupportedModuleError, match=why):
        _stack(_Own(how))


def _shared():
    first, second = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1)
    second.weight = first.weight
    return nn.Sequential(first, second, nn.Flatten(), nn.Linear(768, 10))


@pytest.mark.parametrize(
    ("module", "why"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(768, 10)), "it does not begin with a convolution"),
        (nn.Sequential(nn.Conv2d(3, 16, 5, padding=2)), "'0' is no plain convolution"),
        (nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.Tanh()), "'1', of type Tanh, has"),
        (nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.AvgPool2d(16)), "'1', of type AvgPool"),
        (nn.Sequential(nn.Conv2d(3, 16, 3, padding=1)), "it does not end with a dense layer"),
        (nn.Sequential(nn.Conv2d(3, 200, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                       nn.Linear(200, 10)), "its first convolution has more than 128"),
        (nn.Sequential(nn.Conv2d(3, 12, 1), nn.GroupNorm(3, 12)), "'1' is a GroupNorm without"),
        (nn.Sequential(nn.Conv2d(3, 12, 1), nn.MaxPool2d(3)), "'1' is no 2×2 max-pooling"),
        (nn.Sequential(nn.Conv2d(3, 12, 1), nn.Linear(16, 10)), "'1' is a dense layer of images"),
        (nn.Sequential(nn.ReLU(), nn.Conv2d(3, 12, 1)), "a ReLU follows neither"),
        (nn.Sequential(nn.Conv2d(3, 12, 1), nn.AdaptiveAvgPool2d(2)), "'1' averages to more"),
        (nn.Sequential(nn.Conv2d(3, 12, 1), nn.Flatten(0)), "it flattens something else"),
        (_shared(), "some of its layers share parameters"),
    ],
)  # fmt: skip
def test_unsupported_modules_say_why(module, why):
    with pytest.raises(UnsupportedModuleError, match=why):
        _stack(module)
