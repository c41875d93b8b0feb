"""One step of training on a copy, before a run begins, shows what fits and what changes."""

from __future__ import annotations

import copy
import dataclasses
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from freshband.errors import FreshbandError, ParameterError, reason, shown
from freshband.federated._task import Task
from freshband.federated.clients._noise import learn_pure
from freshband.federated.clients._pointwise import PlainImages
from freshband.federated.data.base import Dataset
from freshband.federated.data.samples import Samples
from freshband.federated.losses.base import scores_of
from freshband.federated.optimisers.base import clip_gradients

_Found = TypeVar("_Found")


@dataclasses.dataclass(frozen=True)
class Findings:
    """What a step of training showed."""

    statistics: tuple[str, ...] = ()  # buffers that it changed
    draws: bool = False  # whether it drew random numbers
    pure: frozenset[Any] = frozenset()  # functions of torch it called that drew none
    guarded: bool = False  # whether oneDNN may differentiate it wrongly


def why_not_plain(module: nn.Module, dataset: Dataset, task: Task) -> str:
    """Return why a model cannot train on the fastest paths; nothing where it can."""
    if isinstance(dataset, Samples):
        return "its samples are not images with a class each"
    if not task.plain:
        return "its loss, optimiser or metric is not the default"
    for name, _ in module.named_buffers():
        return f"{type(module).__name__} has the buffer {name!r}"
    for name, weights in module.named_parameters():
        if not weights.requires_grad:
            return f"the parameter {name!r} is frozen"
    random: tuple[Any, ...] = (nn.modules.dropout._DropoutNd, nn.RReLU)
    for name, part in module.named_modules():
        if isinstance(part, random) and getattr(part, "p", 1.0) > 0:
            return f"layer {name!r} is a {type(part).__name__}"
    weights = next(module.parameters())
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        before = torch.get_rng_state()
        outputs = copy.deepcopy(module).train()(torch.zeros(2, *dataset.shape).to(weights))
        if not torch.equal(before, torch.get_rng_state()):
            return f"{type(module).__name__} draws random numbers in training"
    if not isinstance(outputs, torch.Tensor):
        return f"{type(module).__name__} returns a {type(outputs).__name__}"
    if not outputs.requires_grad:
        raise ParameterError(
            f"model must have outputs that depend on its parameters, those of "
            f"{type(module).__name__} have no gradient"
        )
    return ""


def check_parameters(module: nn.Module) -> None:
    """Refuse a module without parameters to train, or with unknown shapes."""
    name, held = type(module).__name__, list(module.parameters())
    if any(is_lazy(each) for each in held):
        raise ParameterError(
            f"model must know its shapes, {name} has lazy layers: call it on a batch first"
        )
    if any(each.is_meta for each in held):
        raise ParameterError(
            f"model must have its weights, {name} is on the device 'meta': call to_empty, then "
            "load or draw them"
        )
    if not any(each.requires_grad for each in held):
        frozen = " but frozen ones" * bool(held)
        raise ParameterError(f"model must have parameters to train, {name} has none{frozen}")


def try_training(module: nn.Module, dataset: Dataset, task: Task, batch_size: int = 2) -> Findings:
    """Train a copy of a module for one step on two samples; say in one line what does not fit.

    Where a batch is one sample, that is tried: BatchNorm cannot be trained on it.
    """
    name = type(module).__name__
    tried = copy.deepcopy(module).cpu().train()
    trained: list[torch.Tensor] = [each for each in tried.parameters() if each.requires_grad]
    samples = torch.arange(min(batch_size, 2), device=dataset.train_labels.device) % dataset.n_train
    inputs = [each.cpu() for each in dataset.inputs("train", samples)]
    inputs = [each.to(trained[0]) if each.is_floating_point() else each for each in inputs]
    targets = dataset.train_labels[samples].cpu()
    targets = targets.to(trained[0]) if targets.is_floating_point() else targets
    takes = " and ".join(f"{tuple(x.shape)} of {_type(x)}" for x in inputs)
    before = {key: each.clone() for key, each in tried.named_buffers()}
    with torch.random.fork_rng(devices=[]):
        state = torch.get_rng_state()
        with PlainImages() as guard:
            outputs = _call(f"model must take samples, {takes}: {name}", tried, *inputs)
            loss = _loss_of(task, outputs, targets)
            gradients = torch.autograd.grad(loss, trained, allow_unused=True)
        changed = tuple(
            key for key, each in tried.named_buffers() if not torch.equal(each, before[key])
        )
        if all(each is None for each in gradients):
            raise ParameterError(
                f"loss must depend on the parameters of {name}, none of them has a gradient"
            )
        _put_gradients(trained, gradients)
        _try_steps(task, trained)
        draws = not torch.equal(state, torch.get_rng_state())

        def whole_step() -> None:
            found = torch.autograd.grad(
                task.loss(tried(*inputs), targets), trained, allow_unused=True
            )
            _put_gradients(trained, found)
            clip_gradients(trained, getattr(task.optimiser, "clip", None))
            task.optimiser.build(trained, 1e-6).step()

        pure = learn_pure(whole_step) if draws else frozenset()
        tried.eval()
        with torch.no_grad():
            outputs = _call(f"model must take samples, {takes}: {name}", tried, *inputs)
            _call("metric", measure, task, _call("model", scores_of, outputs), targets)
            for part in ("train", "test"):
                _try_extremes(tried, dataset, task, part, trained[0])
    norms = [key for key in before if _is_tracked(tried, key)]
    return Findings(tuple(dict.fromkeys((*norms, *changed))), draws, pure, guard.needed)


def _put_gradients(
    trained: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor | None]
) -> None:
    for each, gradient in zip(trained, gradients, strict=True):
        each.grad = torch.zeros_like(each) if gradient is None else gradient


def _try_steps(task: Task, trained: list[torch.Tensor]) -> None:
    """Make one step by the gradients that the parameters have."""
    example = "lambda parameters: torch.optim.SGD(parameters, lr=0.1)"
    hint = f"it is given the list of a client's parameters, as in {example}"
    steps = _call("optimiser", task.optimiser.build, trained, 1e-6, hint=hint)
    groups = getattr(steps, "param_groups", None)
    if isinstance(groups, list):
        held = {id(each) for group in groups for each in group["params"]}
        if held.isdisjoint(map(id, trained)):
            raise ParameterError(
                f"optimiser must change the parameters it is given, {type(steps).__name__} holds "
                f"none of them: {hint}"
            )
    _call("optimiser", steps.step, hint="its step is called without a closure")


def _try_extremes(
    module: nn.Module,
    dataset: Dataset,
    task: Task,
    part: Literal["train", "test"],
    like: torch.Tensor,
) -> None:
    """Try the samples with the largest and smallest whole numbers: a vocabulary may be too small.

    Only two samples were trained on, which may lack the last classes or tokens.
    """
    labels = getattr(dataset, f"{part}_labels")
    columns = dataset._all(part) if isinstance(dataset, Samples) else [labels]
    rows = {0, min(1, len(labels) - 1)}
    for each in columns:
        if each.dtype == torch.int64 and each.numel():
            flat = each.reshape(len(each), -1)
            rows |= {int(flat.amax(dim=1).argmax()), int(flat.amin(dim=1).argmin())}
    samples = torch.tensor(sorted(rows), device=labels.device)
    inputs = [each.cpu() for each in dataset.inputs(part, samples)]
    inputs = [each.to(like) if each.is_floating_point() else each for each in inputs]
    targets = labels[samples].cpu()
    targets = targets.to(like) if targets.is_floating_point() else targets
    takes = " and ".join(map(_described, inputs))
    outputs = _call(f"model must take samples, {takes}: {type(module).__name__}", module, *inputs)
    what = f"loss of targets {_described(targets)}"
    if isinstance(outputs, torch.Tensor):
        what += f" and outputs {tuple(outputs.shape)}"
    _call(what, task.loss, outputs, targets)


def _described(tensor: torch.Tensor) -> str:
    bounds = f" in [{tensor.min()}, {tensor.max()}]" * (tensor.dtype == torch.int64)
    return f"{tuple(tensor.shape)} of {_type(tensor)}{bounds}"


def _is_tracked(module: nn.Module, name: str) -> bool:
    """Whether a buffer is of a layer that normalises batches, be it unchanged by two samples."""
    kind = nn.modules.batchnorm._NormBase
    return isinstance(module.get_submodule(name.rpartition(".")[0]), kind)


def measure(task: Task, outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the metric as a number, or raise if it is none."""
    found = task.metric(outputs, targets)
    try:
        value = float(found)
    except (TypeError, ValueError, RuntimeError):
        raise ParameterError(f"metric must return one number, got {shown(found)}") from None
    if not math.isfinite(value):
        raise ParameterError(f"metric must return a finite number, got {value}")
    return value


def _loss_of(task: Task, outputs: Any, targets: torch.Tensor) -> torch.Tensor:
    what = f"loss of targets {tuple(targets.shape)} of {_type(targets)}"
    if isinstance(outputs, torch.Tensor):
        what += f" and outputs {tuple(outputs.shape)}"
    with warnings.catch_warnings():  # a loss that torch broadcasts is not the one that was meant
        warnings.filterwarnings("error", message="Using a target size")
        hint = "it is given the model's outputs and the targets"
        loss: Any = _call(what, task.loss, outputs, targets, hint=hint)
    check_loss(loss)
    if not math.isfinite(loss.item()):
        raise ParameterError(f"loss must be finite, got {loss.item()} for the first two samples")
    if not loss.requires_grad:
        raise ParameterError("loss must depend on the model's outputs: it has no gradient")
    found: torch.Tensor = loss
    return found


def check_loss(loss: Any) -> None:
    """Refuse what is not one number as a tensor."""
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.is_floating_point():
        got = f"shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else shown(loss)
        raise ParameterError(f"loss must return the mean of a batch as one number, got {got}")


def _type(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _call(what: str, function: Callable[..., _Found], *given: Any, hint: str = "") -> _Found:
    """Call what is the user's own, and say in one line what it raises.

    ``hint`` says how it is called, where it seems to expect something else.
    """
    try:
        return function(*given)
    except FreshbandError:
        raise
    except Exception as error:  # of any type
        told = f"{type(error).__name__}: {reason(error)}"
        if hint and isinstance(error, TypeError):
            told += f"; {hint}"
        raise ParameterError(f"{what} fails: {told}") from error
