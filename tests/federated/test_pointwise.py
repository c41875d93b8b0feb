"""Strided 1×1 convolutions of few channels: what oneDNN is handed, and what comes back."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from freshband.federated import build_model
from freshband.federated.clients._pointwise import at_risk, differentiate
from tests.federated.narrow import OWN, ZOO, build

REPOSITORY = Path(__file__).parents[2]


# AVX-512 takes sixteen channels at a time and damages memory from some 500 pixels on; AVX2 takes
# eight, and 16 pixels are enough.
@pytest.mark.parametrize(("isa", "side"), [("DEFAULT", 64), ("AVX2", 8)])
def test_gradients_are_those_of_float64(isa: str, side: int) -> None:
    names = [*OWN, *(ZOO if side < 64 else [])]
    done = subprocess.run(
        [sys.executable, "-m", "tests.federated.narrow", str(side), *names],
        cwd=REPOSITORY,
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": isa},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    errors = {tuple(of): float(error) for *of, error in map(str.split, done.stdout.splitlines())}
    assert list(errors) == [(path, name) for path in ("threads", "stacked") for name in names]
    assert max(errors.values()) < 2e-3, errors


class Handed(TorchDispatchMode):
    """Notes how images and kernel of each strided 1×1 convolution lie when it is differentiated."""

    def __init__(self) -> None:
        super().__init__()
        self.plain: list[bool] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.convolution_backward.default:
            _, images, kernel, _, stride, *_ = args
            if kernel.shape[2:] == (1, 1) and max(stride) > 1:
                self.plain.append(all(map(lies_plainly, (images, kernel))))
        return func(*args, **(kwargs or {}))


def lies_plainly(tensor: torch.Tensor) -> bool:
    return tensor.stride() == torch.empty(tensor.shape).stride()


def last_channel(images: torch.Tensor) -> torch.Tensor:
    """Cut out of more channels: with one left, torch calls it contiguous and channels-last."""
    wide = torch.zeros(*images.shape[:1], *images.shape[2:], images.shape[1])
    return wide.copy_(images.movedim(1, -1)).movedim(-1, 1)


# Two by two pixels are too few for damage, so even a failure harms nothing here.
@pytest.mark.parametrize("channels", [1, 3, 15])
@pytest.mark.parametrize("transposed", [False, True])
def test_convolutions_at_risk_are_differentiated_plainly(channels: int, transposed: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(2, channels, 2, 2, generator=generator)
    kernel = torch.randn(4, channels, 1, 1, generator=generator)
    convolve: Any = nn.functional.conv2d
    if transposed:
        convolve, images = nn.functional.conv_transpose2d, images.new_ones(2, 4, 2, 2)
    found = []
    for lay in (torch.clone, last_channel):
        given = [lay(images).requires_grad_(), last_channel(kernel).requires_grad_()]
        with Handed() as handed:
            loss = convolve(*given, stride=2).square().sum()
            found.append(differentiate(loss, given, guarded=True))
        assert handed.plain == [True]
    for plain, other in zip(*found, strict=True):
        assert torch.equal(plain, other)


def test_others_are_left_as_they_are() -> None:
    images = torch.ones(2, 16, 2, 2).to(memory_format=torch.channels_last)
    kernel = torch.ones(4, 16, 1, 1, requires_grad=True)
    for dtype in (torch.float32, torch.float64):
        few = slice(16) if dtype == torch.float32 else slice(3)
        with Handed() as handed:
            scores = nn.functional.conv2d(
                images[:, few].to(dtype), kernel[:, few].to(dtype), stride=2
            )
            differentiate(scores.sum(), [kernel], guarded=True)
        assert handed.plain == [False]


@pytest.mark.parametrize("name", [*ZOO, *OWN])
def test_which_modules_are_at_risk(name: str) -> None:
    module = build(name, (3, 8, 8))
    assert at_risk(module, (3, 8, 8)) == (name in OWN or name == "resnet18")
    assert not at_risk(module.double(), (3, 8, 8))


def test_models_at_their_normal_widths_are_not_at_risk() -> None:
    for name in ZOO:
        assert not at_risk(build_model(name, (3, 32, 32), 10), (3, 32, 32))


def test_a_trial_changes_nothing() -> None:
    module = build("resnet18", (3, 8, 8)).eval()
    before = copy.deepcopy(module.state_dict())
    at_risk(module, (3, 8, 8))
    assert not module.training
    assert all(map(torch.equal, before.values(), module.state_dict().values()))
