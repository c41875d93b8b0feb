"""Training on a CPU: a round of ours against a plain loop, Flower and pfl doing the same work.

Twenty clients with 500 images of 3×32×32 pixels each, the eight-layer CNN, five steps of 32
images. All contestants begin with the same weights and, in the first round, use the same batches;
the models after it must agree. The contestants then run rounds in turn.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.measure import interleave
from benchmarks.plain_loop import LR, WIDTHS, Problem, plain_round
from freshband.federated import Dataset, Federation, Training, load_dataset
from freshband.federated.batches import Batches

__all__ = ["crowd", "table"]

CLIENTS, SAMPLES, STEPS, BATCH = 20, 500, 5, 32
_FOR_EVER = 100_000  # rounds
_CROWD = 1000
_NEAR = 1e-3  # largest difference between contestants, relative to the change of a round

Weights = dict[str, np.ndarray[Any, Any]]


def _settings(n_clients: int, **more: Any) -> Training:
    """Return a run in which all clients train in every round, without evaluations."""
    return Training(
        clients=n_clients,
        rounds=_FOR_EVER,
        channels="stationary",
        channel_options={"means": [1.0] * n_clients},
        policy="random",
        client_lr=LR,
        local_steps=STEPS,
        batch_size=BATCH,
        device="cpu",
        **{"partition": "iid", "eval_every": _FOR_EVER, **more},
    )


def _cnn8(dataset: Dataset, **more: Any) -> Federation:
    return Federation(_settings(CLIENTS, model="cnn8", **more), dataset=dataset)


def _weights(module: torch.nn.Module) -> Weights:
    return {name: weight.numpy().copy() for name, weight in module.state_dict().items()}


def _problem(dataset: Dataset, federation: Federation) -> Problem:
    """Return the work of a federation's first round."""
    chosen = federation.settings
    batches = Batches(chosen.seed, chosen.run, STEPS, BATCH)
    drawn = [
        batches.draw(held, round=1, client=client)
        for client, held in enumerate(federation.partition.train)
    ]
    return Problem(
        images=dataset.normalise(dataset.train_images),
        labels=dataset.train_labels,
        batches=torch.from_numpy(np.stack(drawn)),
        weights=_weights(federation.module()),
    )


# ------------------------------------------------------------------------------ contestants


class _Ours:
    """Whole rounds of a federation: training, scheduling, aggregation, the record."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.first: Weights | None = None

    def __call__(self, turn: int) -> None:
        self.federation.step()
        self.first = self.first or _weights(self.federation.module())


class _Plain:
    """The plain loop with a number of torch threads."""

    def __init__(self, problem: Problem, threads: int) -> None:
        self.problem, self.threads, self.model = problem, threads, problem.model()
        self.first: Weights | None = None

    def __call__(self, turn: int) -> None:
        with _torch_threads(self.threads):
            plain_round(self.model, self.problem)
        self.first = self.first or _weights(self.model)


class _Peer:
    """A script in another environment that runs a round for each line it reads."""

    def __init__(self, python: Path, name: str, folder: Path, *arguments: str) -> None:
        script = Path(__file__).with_name(f"peer_{name}.py")
        self.result = folder / f"{name}.npz"
        self.process = subprocess.Popen(
            [str(python), str(script), str(folder), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._await("ready")

    def _await(self, word: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(word):
                return
        raise RuntimeError(f"{self.result.stem} ended before it said {word!r}")

    def __call__(self, turn: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        self._await("seconds")

    @property
    def first(self) -> Weights:
        with np.load(self.result) as archive:
            return {name: archive[name] for name in archive.files}

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


@contextmanager
def _torch_threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _distance(one: Weights, other: Weights, begin: Weights) -> float:
    """Return the distance of two models, relative to the distance the first has moved."""
    apart = max(float(np.abs(one[name] - other[name]).max()) for name in begin)
    moved = max(float(np.abs(one[name] - begin[name]).max()) for name in begin)
    return apart / moved


# ------------------------------------------------------------------------------ the limit


def _products() -> list[tuple[int, int, int]]:
    """List rows, inner size and columns of every matrix product of a step, as im2col makes them."""
    found = []
    inputs, side = 3, 32
    for width in WIDTHS:
        for channels in (inputs, width):
            pixels, patch = BATCH * side * side, 9 * channels
            found += [(pixels, patch, width), (width, pixels, patch)]
            if channels != 3:  # no gradient with respect to the images
                found.append((pixels, width, patch))
        inputs, side = width, side // 2
    for size, outputs in ((inputs * side * side, 128), (128, 10)):
        found += [(BATCH, size, outputs), (outputs, BATCH, size), (BATCH, outputs, size)]
    return found


def _multiply(sizes: list[tuple[int, int, int]], times: int) -> Callable[[int], None]:
    """Return products of these sizes, each computed ``times`` times, on two threads."""

    def half() -> None:
        torch.set_num_threads(1)
        rng = torch.Generator().manual_seed(0)
        pairs = [
            (torch.randn(m, k, generator=rng), torch.randn(k, n, generator=rng), torch.empty(m, n))
            for m, k, n in sizes
        ]
        for _ in range(times // 2):
            for left, right, out in pairs:
                torch.mm(left, right, out=out)

    def play(turn: int) -> None:
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(half) for _ in range(2)]:
                done.result()

    return play


def _limits() -> dict[str, Callable[[int], object]]:
    """Return a round's multiplications and nothing else, in two forms."""
    steps = CLIENTS * STEPS
    needed = steps * sum(m * k * n for m, k, n in _products())
    return {
        "im2col": _multiply(_products(), steps),
        "square": _multiply([(1024, 1024, 1024)], round(needed / 1024**3)),
    }


# ------------------------------------------------------------------------------ tables


def table(repeats: int, flower: Path | None, pfl: Path | None) -> dict[str, Any]:
    """Measure everything; the pythons of Flower's and pfl's environments are optional."""
    turns = max(3, repeats // 8)
    return {
        "setting": f"{CLIENTS} clients, {SAMPLES} images of 3×32×32 each, eight-layer CNN, "
        f"E={STEPS}, batch {BATCH}, torch {version('torch')}",
        **_race(turns, flower, pfl),
        "small": _small(4 * turns),
        "crowd": _crowd(),
    }


def _race(turns: int, flower: Path | None, pfl: Path | None) -> dict[str, Any]:
    dataset = load_dataset("synthetic", n_train=CLIENTS * SAMPLES, n_test=10)
    with ExitStack() as stack, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours = {
            f"freshband, {workers} worker{'s'[: workers - 1]}": _Ours(
                stack.enter_context(_cnn8(dataset, val_fraction=0, workers=workers))
            )
            for workers in (1, 2)
        }
        problem = _problem(dataset, next(iter(ours.values())).federation)
        problem.write(folder)
        rivals: dict[str, Any] = {
            "plain loop": _Plain(problem, 1),
            "plain loop, 2 torch threads": _Plain(problem, 2),
            **ours,
        }
        if flower is not None:
            rivals["Flower simulation"] = _Peer(flower, "flower", folder, "2")
            stack.callback(rivals["Flower simulation"].close)
        if pfl is not None:
            rivals["pfl"] = _Peer(pfl, "pfl", folder)
            stack.callback(rivals["pfl"].close)
        valued = stack.enter_context(_cnn8(dataset, workers=2, contribution="paper"))
        unvalued = stack.enter_context(_cnn8(dataset, workers=2))
        extra: dict[str, Callable[[int], object]] = {
            **_limits(),
            "valued": lambda turn: valued.step(),
            "unvalued": lambda turn: unvalued.step(),
        }
        seconds = interleave({**rivals, **extra}, turns)
        for rival, contestant in rivals.items():
            apart = _distance(rivals["plain loop"].first, contestant.first, problem.weights)
            if apart > _NEAR:
                raise RuntimeError(f"{rival} computes something else: {apart:.1e} of a round off")
    plain, best = seconds["plain loop"], seconds["freshband, 2 workers"]
    return {
        "rows": {
            rival: {"seconds": seconds[rival], "times_plain": seconds[rival] / plain}
            for rival in rivals
        },
        "im2col_s": seconds["im2col"],
        "limit_s": seconds["square"],
        "share_of_limit": seconds["square"] / best,
        "contribution_share": seconds["valued"] / seconds["unvalued"] - 1,
    }


def _small(turns: int) -> dict[str, Any]:
    """Time the digits, ten clients, the small CNN."""
    kinds: dict[str, dict[str, Any]] = {
        "training": {},
        "with contributions": {"contribution": "paper"},
        "with test accuracy": {"eval_every": 1},
    }
    with ExitStack() as stack:
        runs = {
            name: _Ours(stack.enter_context(Federation(_settings(10, dataset="digits", **more))))
            for name, more in kinds.items()
        }
        seconds = interleave(runs, turns)
    return {name: value * 1e3 for name, value in seconds.items()}


def _crowd() -> dict[str, Any]:
    """Run a thousand clients in a separate process, to measure its peak memory."""
    code = "from benchmarks.training import crowd; crowd()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1],
    )
    empty, peak, seconds = (float(word) for word in done.stdout.split())
    return {"clients": _CROWD, "seconds": seconds, "peak_bytes": peak, "empty_bytes": empty}


def crowd() -> None:
    """Print the bytes of an empty process, its peak, and seconds per round."""
    empty = _peak_bytes()
    dataset = load_dataset("synthetic", shape=(1, 8, 8), n_train=60 * _CROWD, n_test=100)
    settings = _settings(_CROWD, model="small-cnn", contribution="paper")
    with Federation(settings, dataset=dataset) as federation:
        seconds = interleave({"round": lambda turn: federation.step()}, 5)
    print(empty, _peak_bytes(), seconds["round"])


def _peak_bytes() -> int:
    """Return the peak memory of this process; `getrusage` would include its parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
