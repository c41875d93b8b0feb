"""What a model is: a recipe for a `torch.nn.Module`, the registry, and how to build one.

Initial weights depend only on the seed. They are drawn on the CPU from their own stream, and
torch's global generators are left as they were.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from torch import nn

from freshband._registry import Registry
from freshband._seeding import Role, check_seed, sequence
from freshband.errors import ParameterError, shown
from freshband.federated.losses.base import scores_of
from freshband.parameters import whole_number

_Shape: TypeAlias = tuple[int, int, int]
_AnyShape: TypeAlias = tuple[int, ...]


@runtime_checkable
class ModelSpec(Protocol):
    """A recipe: a frozen `freshband.parameters.Parameters` that builds modules.

    A recipe for samples other than images, (channels, height, width), has ``any_shape = True``.
    """

    def build(self, shape: Any, n_classes: int) -> nn.Module:
        """Return a new module from (batch, *shape) to (batch, n_classes) unnormalised scores.

        It draws weights from torch's default generator, which `build_model` seeds. ``n_classes`` is
        0 where targets are numbers.
        """
        ...


registry: Registry[type[ModelSpec]] = Registry("model", "freshband.federated.models")
register = registry.register


def build_model(
    model: str | ModelSpec | nn.Module,
    shape: tuple[int, ...],
    n_classes: int,
    seed: int = 0,
    run: int = 0,
    *,
    scores: bool = True,
    **params: object,
) -> nn.Module:
    """Build a model by name; a ready module is checked and returned as it is.

    Parameters
    ----------
    model : str, ModelSpec or torch.nn.Module
        A registered name (``"cnn8"``, ``"resnet18"``, ``"small-cnn"``, ``"mlp"``), a recipe, or
        the user's own module.
    shape : (int, int, int)
        Channels, height and width of an image; of other samples any sizes.
    n_classes : int >= 2
        0 where targets are numbers.
    seed, run : int >= 0, default 0
        The user's seed and the number of the run; equal numbers give equal weights.
    scores : bool, default True
        Whether a module must give a score for each class of an image.
    **params
        Parameters of the named model, such as ``widths``.

    Returns
    -------
    torch.nn.Module
        On the CPU, in training mode, float32.

    Examples
    --------
    >>> model = build_model("small-cnn", shape=(1, 8, 8), n_classes=10, seed=0)
    >>> sum(weights.numel() for weights in model.parameters())
    3818
    >>> mine = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    >>> build_model(mine, shape=(1, 8, 8), n_classes=10) is mine
    True
    >>> build_model("cnn9", (3, 32, 32), 10)
    Traceback (most recent call last):
    freshband.errors.UnknownNameError: unknown model 'cnn9'; did you mean 'cnn8'?
    """
    n_classes = whole_number("n_classes", n_classes, at_least=2 if scores else 0)
    sizes = _check_shape(shape) if scores else shape
    seed, run = check_seed(seed), whole_number("run", run, at_least=0)
    wanted = "model must be a name, a recipe or an nn.Module"
    found: ModelSpec | nn.Module = registry.make(model, params, nn.Module | ModelSpec, wanted)
    if isinstance(found, nn.Module):
        if scores:
            _check_module(found, sizes, n_classes)
        return found
    if not scores and not getattr(found, "any_shape", False):
        sizes = _check_shape(shape, f" for {type(found).__name__}, a model of images")
    # Child 0 of the role draws weights; batches have another.
    drawn = sequence(seed, Role.TRAINING, run).spawn(1)[0].generate_state(1, np.uint64)[0]
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(int(drawn))  # only the CPU's, which fork_rng restores
        return found.build(sizes, n_classes)


def _initialise(module: nn.Module) -> nn.Module:
    """Give convolutions and dense layers He's weights, drawn in order, and zero biases.

    Uniform weights in `±√(6 / fan_in)` keep the signal's variance from one ReLU to the next;
    torch's default shrinks it sixfold per layer. The last layer keeps that default: its scores go
    through no ReLU and should begin small.
    """
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    for layer in layers[:-1]:
        nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
    for layer in layers:
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
    return module


def _room_to_pool(name: str, shape: _Shape, times: int) -> tuple[int, int]:
    """Return height and width after halving ``times`` times, or raise `ParameterError`."""
    least = 2**times
    if min(shape[1:]) < least:
        raise ParameterError(
            f"shape must be at least {least}×{least} pixels for {name}, got {shape[1]}×{shape[2]}"
        )
    return shape[1] // least, shape[2] // least


def _check_shape(shape: tuple[int, ...], why: str = "") -> _Shape:
    sizes = tuple(shape) if isinstance(shape, Iterable) else ()
    if len(sizes) != 3:
        raise ParameterError(
            f"shape must be three whole numbers (channels, height, width){why}, got {shown(shape)}"
        )
    channels, height, width = (whole_number("shape", size, at_least=1) for size in sizes)
    return channels, height, width


def _check_module(module: nn.Module, shape: _AnyShape, n_classes: int) -> None:
    """Try a copy of a user's module on two blank images."""
    weights = next(module.parameters(), None)
    if weights is None:
        raise ParameterError(
            f"model must have parameters to train, {type(module).__name__} has none"
        )
    wanted = f"model must map ({', '.join(map(str, (2, *shape)))}) to (2, {n_classes})"
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            returned = copy.deepcopy(module).eval()(torch.zeros(2, *shape).to(weights))
    except Exception as error:  # of any type
        what = str(error).partition("\n")[0]
        if not isinstance(error, RuntimeError | ValueError | TypeError | IndexError):
            what = f"{type(error).__name__}: {what}"
        raise ParameterError(f"{wanted}, {type(module).__name__} fails: {what}") from None
    try:
        scores = scores_of(returned)
    except TypeError:
        raise ParameterError(f"{wanted}, got {type(returned).__name__}") from None
    if scores.shape != (2, n_classes):
        raise ParameterError(f"{wanted}, got {tuple(scores.shape)}")
