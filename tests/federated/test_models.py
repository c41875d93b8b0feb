from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from freshband.errors import ParameterError, UnknownNameError
from freshband.federated import load_dataset
from freshband.federated.models import Cnn8, build_model, registry

SHAPES = {"cnn8": (3, 32, 32), "resnet18": (3, 32, 32), "small-cnn": (1, 8, 8), "mlp": (1, 8, 8)}

every_model = pytest.mark.parametrize("name", SHAPES)  # of images

PAGE = Path(__file__).parents[2] / "docs" / "federated-data.md"


def weights(module: nn.Module) -> torch.Tensor:
    return torch.cat([part.flatten() for part in module.parameters()]).detach()


def test_the_models_are_registered() -> None:
    assert set(registry.names()) == {*SHAPES, "char-gru"}


@pytest.mark.parametrize(
    ("name", "n_classes", "parameters"),
    [
        ("cnn8", 10, 550_570),
        ("cnn8", 100, 562_180),
        ("resnet18", 10, 11_173_962),
        ("resnet18", 100, 11_220_132),
        ("small-cnn", 10, 3_818),
        ("mlp", 10, 4_810),
    ],
)
def test_parameters_are_counted_as_documented(name: str, n_classes: int, parameters: int) -> None:
    model = build_model(name, SHAPES[name], n_classes)
    assert sum(part.numel() for part in model.parameters()) == parameters
    (row,) = (line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{name}` |"))
    assert f" {parameters:,} (" in row
    assert not list(model.buffers())  # parameters are all there is to send
    assert {part.dtype for part in model.parameters()} == {torch.float32}


@every_model
def test_weights_depend_on_the_seed_alone(name: str) -> None:
    params = {"width": 4} if name == "resnet18" else {}

    def drawn(**seeds: int) -> torch.Tensor:
        return weights(build_model(name, SHAPES[name], 10, **seeds, **params))

    torch.manual_seed(1)
    first = drawn(seed=5)
    after = torch.rand(3)
    torch.manual_seed(1)
    assert torch.equal(after, torch.rand(3))  # the global generator was left as it was
    assert torch.equal(first, drawn(seed=5))
    assert not torch.equal(first, drawn(seed=6))
    assert not torch.equal(first, drawn(seed=5, run=1))


@every_model
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 17, 9), (2, 32, 32)])
def test_any_shape_that_fits_gives_finite_scores(name: str, shape: tuple[int, int, int]) -> None:
    params = {"width": 4} if name == "resnet18" else {}
    model = build_model(name, shape, 7, **params)
    scores = model(torch.randn(5, *shape, generator=torch.Generator().manual_seed(0)))
    assert scores.shape == (5, 7)
    assert bool(torch.isfinite(scores).all())
    assert 0.05 < float(scores.detach().std()) < 5  # neither faded nor blown up
    scores.square().sum().backward()
    dead = [key for key, part in model.named_parameters() if part.grad is None]
    assert dead == []


@every_model
def test_images_are_scored_one_by_one(name: str) -> None:
    """No layer mixes the images of a batch: what BatchNorm would do."""
    params = {"width": 4} if name == "resnet18" else {}
    model = build_model(name, SHAPES[name], 10, **params)
    images = torch.randn(4, *SHAPES[name], generator=torch.Generator().manual_seed(0))
    together = model(images)
    apart = torch.cat([model(image[None]) for image in images])
    torch.testing.assert_close(together, apart, rtol=1e-4, atol=1e-5)


def test_pooling_before_relu_changes_nothing() -> None:
    model = build_model("cnn8", (3, 32, 32), 10)
    usual = list(model)
    for place, layer in enumerate(usual[:-1]):
        if isinstance(layer, nn.MaxPool2d):
            usual[place], usual[place + 1] = usual[place + 1], layer
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(model(images), nn.Sequential(*usual)(images))


def test_cnn8_has_six_convolutions_and_two_dense_layers() -> None:
    layers = list(build_model("cnn8", (3, 32, 32), 10, widths=[4, 6, 8], hidden=5))
    convolutions = [layer for layer in layers if isinstance(layer, nn.Conv2d)]
    assert [layer.out_channels for layer in convolutions] == [4, 4, 6, 6, 8, 8]
    assert {layer.kernel_size for layer in convolutions} == {(3, 3)}
    dense = [layer for layer in layers if isinstance(layer, nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in dense] == [(128, 5), (5, 10)]


def test_resnet18_is_a_resnet18() -> None:
    model = build_model("resnet18", (3, 32, 32), 100, width=4)
    kinds = [type(part).__name__ for part in model.modules()]
    assert kinds.count("Conv2d") == 17 + 3  # 16 in blocks, the stem, and three shortcuts
    assert kinds.count("GroupNorm") == 17 + 3
    sides = []
    images = torch.zeros(1, 3, 32, 32)
    for part in model[:-3]:
        images = part(images)
        sides.append(images.shape[-1])
    assert sides == [32] * 5 + [16, 16, 8, 8, 4, 4]
    batch = build_model("resnet18", (3, 32, 32), 100, width=4, norm="batch", groups=3)
    assert len(weights(batch)) == len(weights(model))
    assert list(batch.buffers())


def test_small_models_learn_the_digits() -> None:
    digits = load_dataset("digits")
    images, test = (digits.normalise(some) for some in (digits.train_images, digits.test_images))
    for name in ("small-cnn", "mlp"):
        model = build_model(name, digits.shape, digits.n_classes, seed=0)
        step = torch.optim.SGD(model.parameters(), lr=0.1)
        generator = torch.Generator().manual_seed(0)
        for _ in range(200):
            batch = torch.randint(len(images), (32,), generator=generator)
            loss = nn.functional.cross_entropy(model(images[batch]), digits.train_labels[batch])
            step.zero_grad()
            loss.backward()
            step.step()
        accuracy = (model(test).argmax(1) == digits.test_labels).float().mean()
        assert float(accuracy) > 0.9, name


# One's own ----------------------------------------------------------------------------------------


def test_a_module_of_ones_own_is_returned_as_it_is() -> None:
    mine = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.BatchNorm1d(64), nn.Linear(64, 10))
    mine[2].eval()
    before = {key: value.clone() for key, value in mine.state_dict().items()}
    state = torch.get_rng_state()
    assert build_model(mine, (1, 8, 8), 10) is mine
    assert [part.training for part in mine] == [True, True, False, True]
    assert all(torch.equal(value, before[key]) for key, value in mine.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())
    assert build_model(mine.double(), (1, 8, 8), 10) is mine


def test_a_recipe_of_ones_own_needs_no_name() -> None:
    class Linear:
        def build(self, shape: tuple[int, int, int], n_classes: int) -> nn.Module:
            return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), n_classes))

    first, second = (build_model(Linear(), (1, 2, 2), 3, seed=1) for _ in range(2))
    assert torch.equal(weights(first), weights(second))


def test_a_user_default_device_changes_nothing() -> None:
    expected = weights(build_model("mlp", (1, 8, 8), 10))
    with torch.device("meta"):
        assert torch.equal(weights(build_model("mlp", (1, 8, 8), 10)), expected)


@pytest.mark.parametrize(
    ("model", "params", "message"),
    [
        (nn.Linear(3, 10), {}, r"model must map \(2, 1, 8, 8\) to \(2, 10\), Linear fails: mat1"),
        (nn.Linear(8, 10), {}, r"to \(2, 10\), got \(2, 1, 8, 10\)"),
        (nn.Flatten(), {}, "model must have parameters to train, Flatten has none"),
        (nn.Linear(8, 10), {"width": 3}, "parameters need a model given by name"),
        (nn.Linear, {}, "model must be a name, a recipe or an nn.Module"),
        (nn.Linear, {"width": 3}, "nn.Module, got <class .*; give an object, not its class"),
        (Cnn8, {}, "model must be a name, a recipe or an nn.Module"),
        ("cnn8", {"widths": [1, 2]}, "widths must be three whole numbers"),
        ("cnn8", {"widths": [1, 2, 0]}, "widths must be a list of numbers >= 1"),
        ("cnn8", {"hiden": 3}, "did you mean 'hidden'?"),
        ("small-cnn", {"widths": [1, 2, 3]}, "widths must be two whole numbers"),
        ("resnet18", {"width": 5}, "groups must divide width = 5, got 2"),
        ("resnet18", {"norm": "layer"}, "norm must be one of 'group', 'batch', got 'layer'"),
    ],
)
def test_bad_models_are_named(model: Any, params: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        build_model(model, (1, 8, 8), 10, **params)


@pytest.mark.parametrize(("name", "least"), [("cnn8", 8), ("resnet18", 8), ("small-cnn", 2)])
def test_images_too_small_are_named(name: str, least: int) -> None:
    wanted = f"shape must be at least {least}×{least} pixels for {name}, got 9×{least - 1}"
    with pytest.raises(ParameterError, match=wanted):
        build_model(name, (1, 9, least - 1), 10)


def test_other_arguments_are_checked() -> None:
    with pytest.raises(UnknownNameError, match="'resnet'; did you mean 'resnet18'"):
        build_model("resnet", (1, 8, 8), 10)
    with pytest.raises(ParameterError, match="shape must be three whole numbers"):
        build_model("mlp", (8, 8), 10)
    with pytest.raises(ParameterError, match=r"shape must be three whole numbers .*, got 8"):
        build_model("mlp", 8, 10)
    with pytest.raises(ParameterError, match="shape must be a whole number >= 1, got 0"):
        build_model("mlp", (1, 0, 8), 10)
    with pytest.raises(ParameterError, match="n_classes must be a whole number >= 2, got 1"):
        build_model("mlp", (1, 8, 8), 1)
