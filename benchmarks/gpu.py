"""Local training on one GPU: ``python -m benchmarks.gpu [--models ...] [--out FILE]``.

Times a round of 20 clients, five steps of 64 images each: the sequential loop, plain
``torch.func.vmap``, and `GraphedClients` both ways, of which "mapped" first compiles for some
minutes. The roofline beside them is the time that the layers would take if each only computed its
products at the rate of a large matrix product, or only read and wrote its arrays at the rate of a
large copy, whichever takes longer. Both rates are measured.
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.measure import interleave
from freshband.federated.clients._base import LocalTraining, ParameterLayout, TrainingJob, Trial
from freshband.federated.clients._threads import ThreadedClients
from freshband.federated.clients.gpu.graphs import GraphedClients, _Precision, _Way
from freshband.federated.data.base import Dataset
from freshband.federated.models import build_model

__all__ = ["main", "roofline"]

CLIENTS, STEPS, BATCH, TRIAL = 20, 5, 64, 160
CLASSES = {"cnn8": 10, "resnet18": 100}
WAYS: tuple[tuple[_Way, _Precision], ...] = (
    ("mapped", "tf32"),
    ("mapped", "bf16"),
    ("kernels", "tf32"),
    ("kernels", "bf16"),
)
LR = 0.01


def ceilings() -> dict[str, float]:
    """Measure FLOP/s of large matrix products and bytes/s of a large copy."""
    found = {}
    side = 8192
    for name, dtype in (("bf16", torch.bfloat16), ("tf32", torch.float32)):
        a, b = (torch.randn(side, side, device="cuda", dtype=dtype) for _ in range(2))
        found[name] = 2 * side**3 / _seconds(partial(torch.matmul, a, b))
    source = torch.randint(0, 256, (2**31,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    found["copy"] = 2 * len(source) / _seconds(partial(target.copy_, source))
    return found


def _seconds(action: Callable[[], object], repeats: int = 10) -> float:
    def once(_: int) -> None:
        action()
        torch.cuda.synchronize()

    return interleave({"": once}, repeats, warm_up=2)[""]


def roofline(
    module: nn.Module, shape: tuple[int, ...], rates: dict[str, float], low: bool
) -> float:
    """Return the seconds of a round: for each layer the larger of arithmetic and traffic.

    Convolutions and dense layers read and write their arrays once in each of the three products
    (outputs, gradients of inputs, gradients of weights), norms read and write two arrays on the
    way there and three back, weights are read, moved and rounded; all else is free.
    """
    width = 2 if low else 4
    rate = rates["bf16" if low else "tf32"]
    seconds, first = 0.0, True
    for layer, inputs, outputs in _shapes(module, shape):
        weights = sum(parameter.numel() for parameter in layer.parameters())
        if isinstance(layer, nn.GroupNorm):
            seconds += 5 * BATCH * outputs * width / rates["copy"]
            continue
        macs = BATCH * outputs * layer.get_parameter("weight")[0].numel()
        arrays = BATCH * (inputs + outputs) * width
        moved = weights * (4 + 4 + 4 + width)  # old and new weights, gradients, rounded weights
        times = 2 if first else 3
        traffic = times * (arrays + weights * width) + moved
        seconds += max(times * 2 * macs / rate, traffic / rates["copy"])
        first = False
    return seconds * CLIENTS * STEPS


def _shapes(module: nn.Module, shape: tuple[int, ...]) -> Iterator[tuple[nn.Module, int, int]]:
    """Yield each layer that has weights, with the sizes of its input and output for one image."""
    seen: list[tuple[nn.Module, int, int]] = []

    def note(layer: nn.Module, given: tuple[torch.Tensor, ...], found: torch.Tensor) -> None:
        seen.append((layer, given[0].numel(), found.numel()))

    layers = [
        part for part in module.modules() if next(part.parameters(recurse=False), None) is not None
    ]
    hooks = [layer.register_forward_hook(note) for layer in layers]
    with torch.no_grad():
        module(torch.zeros(1, *shape))
    for hook in hooks:
        hook.remove()
    yield from seen


def vmapped(module: nn.Module, dataset: Dataset, batches: torch.Tensor) -> Callable[[], object]:
    """Return a round written with plain ``torch.func``."""
    start = {name: value.detach() for name, value in module.named_parameters()}

    def loss(
        weights: dict[str, torch.Tensor], images: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        scores = torch.func.functional_call(module, weights, (images,))
        return nn.functional.cross_entropy(scores, labels)

    gradients = torch.func.vmap(torch.func.grad(loss))

    def train() -> dict[str, torch.Tensor]:
        weights = {name: value.expand(CLIENTS, *value.shape) for name, value in start.items()}
        for samples in batches.unbind(1):
            images = dataset.normalise(dataset.train_images[samples])
            found = gradients(weights, images, dataset.train_labels[samples])
            weights = {name: value - LR * found[name] for name, value in weights.items()}
        return weights

    return train


class Bench:
    """One model, its data, and the jobs of several runs."""

    def __init__(self, name: str, runs: int) -> None:
        rng = np.random.default_rng(0)
        images = torch.from_numpy(rng.integers(0, 256, (60_000, 3, 32, 32), np.uint8))
        labels = torch.from_numpy(rng.integers(0, CLASSES[name], 60_000))
        self.dataset = Dataset.of(
            images[:50_000], labels[:50_000], images[50_000:], labels[50_000:],
            n_classes=CLASSES[name],
        ).to("cuda")  # fmt: skip
        self.module = build_model(name, self.dataset.shape, CLASSES[name], seed=0)
        self.layout = ParameterLayout(self.module)
        start = self.layout.read(self.module).cuda()
        outs = torch.empty((runs * CLIENTS, self.layout.size), device="cuda")
        batches = rng.integers(0, 50_000, (runs * CLIENTS, STEPS, BATCH))
        self.jobs = [TrainingJob(start, some, out) for some, out in zip(batches, outs, strict=True)]
        self.trials = [
            Trial(out, rng.choice(50_000, TRIAL, replace=False)) for out in outs[:CLIENTS]
        ]
        self.batches = torch.from_numpy(batches[:CLIENTS]).cuda()

    def sequential(self) -> ThreadedClients:
        """Return the loop over clients: one worker."""
        return ThreadedClients(_on_gpu(self.module), self.dataset, 1)

    def graphed(
        self, way: _Way, precision: _Precision, together: int | None = None
    ) -> GraphedClients:
        """Return the path to measure."""
        return GraphedClients(self.module, self.dataset, precision, way=way, together=together)


def _on_gpu(module: nn.Module) -> nn.Module:
    return copy.deepcopy(module).cuda()


def measure(name: str, rates: dict[str, float], repeats: int) -> dict[str, Any]:
    """Time one model; milliseconds."""
    bench = Bench(name, runs=8)
    jobs = bench.jobs[:CLIENTS]
    loop = bench.sequential()
    wide = vmapped(_on_gpu(bench.module), bench.dataset, bench.batches)
    actions: dict[str, Callable[[], object]] = {
        "sequential, tf32": partial(loop.train, jobs, LR),
        "vmap, tf32": wide,
    }
    paths = {f"{way}, {precision}": bench.graphed(way, precision) for way, precision in WAYS}
    for label, path in paths.items():
        actions[label] = partial(path.train, jobs, LR)
    rounds = _interleaved(actions, repeats)
    best = paths["kernels, bf16"]
    extras = _interleaved(
        {
            "trials": partial(best.count_correct, bench.trials),
            "exam": partial(best.examine, jobs[0].start),
            **{f"{n} clients": partial(best.train, jobs[:n], LR) for n in (1, 2, 5, 10, 15, 20)},
        },
        repeats,
    )
    errors = _distances({"sequential, tf32": loop, **paths}, loop, jobs)
    for path in paths.values():
        path.close()
    loop.close()
    torch.cuda.empty_cache()
    floors = {"tf32": roofline(bench.module, bench.dataset.shape, rates, low=False) * 1e3}
    floors["bf16"] = roofline(bench.module, bench.dataset.shape, rates, low=True) * 1e3
    return {
        "round_ms": rounds,
        "roofline_ms": floors,
        "distance_from_float32": errors,
        "kernels_bf16_ms": extras,
        "runs_per_batch": _runs(bench, repeats),
    }


def _distances(
    paths: dict[str, LocalTraining], loop: ThreadedClients, jobs: list[TrainingJob]
) -> dict[str, float]:
    """Return the distance of updates from those of the loop in float32, relative to their norm."""
    _multiply("ieee")
    loop.train(jobs, LR)
    want = torch.stack([job.out for job in jobs])
    _multiply("tf32")
    found = {}
    for label, path in paths.items():
        path.train(jobs, LR)
        got = torch.stack([job.out for job in jobs])
        found[label] = float((got - want).norm() / want.norm())
    return found


def _multiply(precision: str) -> None:
    backends: Any = torch.backends
    backends.cuda.matmul.fp32_precision = precision
    backends.cudnn.conv.fp32_precision = precision


def _runs(bench: Bench, repeats: int) -> dict[str, dict[str, float]]:
    """Return rounds per second, of all runs together, when whole runs share the batches."""
    table: dict[str, dict[str, float]] = {}
    for together in (20, 40, 160):
        path = bench.graphed("kernels", "bf16", together)
        actions: dict[str, Callable[[], object]] = {
            str(runs): partial(path.train, bench.jobs[: runs * CLIENTS], LR) for runs in (8, 4, 1)
        }
        found = _interleaved(actions, repeats)
        table[str(together)] = {runs: int(runs) * 1e3 / ms for runs, ms in found.items()}
        path.close()
        torch.cuda.empty_cache()
    return table


def _interleaved(actions: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    def timed(action: Callable[[], object]) -> Callable[[int], None]:
        def once(_: int) -> None:
            action()
            torch.cuda.synchronize()

        return once

    timings = interleave({name: timed(do) for name, do in actions.items()}, repeats, warm_up=2)
    return {name: seconds * 1e3 for name, seconds in timings.items()}


def table(results: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    lines = [
        f"{results['device']}, {CLIENTS} clients, {STEPS} steps of {BATCH} images",
        "",
        "| model | path | ms per round | × faster than the loop | × roofline | off float32 by |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for name, found in results["models"].items():
        loop = found["round_ms"]["sequential, tf32"]
        for label, took in found["round_ms"].items():
            floor = found["roofline_ms"][label.rpartition(" ")[2]]
            off = found["distance_from_float32"].get(label)
            ratios = (
                f"{loop / took:.1f} | {took / floor:.1f} | {'' if off is None else f'{off:.1e}'}"
            )
            lines.append(f"| {name} | {label} | {took:.2f} | {ratios} |")
        for precision, floor in found["roofline_ms"].items():
            lines.append(
                f"| {name} | roofline, {precision} | {floor:.2f} | {loop / floor:.0f} | 1 | |"
            )
    for name, found in results["models"].items():
        extra = ", ".join(f"{k} {v:.2f}" for k, v in found["kernels_bf16_ms"].items())
        lines += ["", f"{name}, kernels, bf16, ms: {extra}", ""]
        lines += ["| clients together | 1 run | 4 runs | 8 runs |", "| ---: | ---: | ---: | ---: |"]
        for together, rate in found["runs_per_batch"].items():
            rounds = " | ".join(f"{rate[runs]:.0f}" for runs in ("1", "4", "8"))
            lines.append(f"| {together} | {rounds} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print; write the numbers to a file with ``--out``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=list(CLASSES), default=list(CLASSES))
    parser.add_argument("--repeats", type=int, default=7, help="number of times each path is timed")
    parser.add_argument("--out", type=Path, help="file to write all numbers to, as JSON")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("this benchmark needs a CUDA GPU, and torch finds none")
    _multiply("tf32")
    rates = ceilings()
    results: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "ceilings": rates,
        "models": {},
    }
    for name in args.models:
        results["models"][name] = measure(name, rates, args.repeats)
        if args.out is not None:
            args.out.write_text(json.dumps(results, indent=2) + "\n")
    print(table(results))


if __name__ == "__main__":
    main()
