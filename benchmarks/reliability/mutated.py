"""Mutated files of every kind the project reads: ``... mutated [--files N] [--seconds S]``.

Bytes are flipped, cut out, doubled, inserted, exchanged and cut off at the end. A file is then
refused with a `FreshbandError` of one line, or read as the numbers it had before. Everything else
is counted: another exception, other numbers, more than five seconds.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

SLOW = 5.0  # seconds
AGAIN = "made again"  # what becomes of a kept run that is damaged


def mutate(data: bytes, rng: np.random.Generator) -> bytes:
    """Return the bytes with one to three changes."""
    found = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(found) + 1))
        size = int(rng.integers(1, 9)) if rng.random() < 0.7 else int(rng.integers(1, 400))
        kind = rng.integers(6)
        if kind == 0 and found:
            found[min(at, len(found) - 1)] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            del found[at : at + size]
        elif kind == 2:
            found[at:at] = found[at : at + size]
        elif kind == 3:
            found[at:at] = rng.integers(0, 256, size, np.uint8).tobytes()
        elif kind == 4:
            found[at : at + size] = rng.integers(0, 256, size, np.uint8).tobytes()
        else:
            del found[max(0, len(found) - size) :]
    return bytes(found)


class Kind:
    """A kind of file: how one is read, to something that can be compared."""

    def __init__(self, path: Path, read: Callable[[], Any], checked: bool = True) -> None:
        self.path, self.read = path, read
        self.data = path.read_bytes()
        self.known = read()
        self.checked = checked  # whether it has a checksum; else other numbers are its content


def _content(arrays: Any) -> str:
    return AGAIN if arrays is None else str(arrays)


def _equal(one: Any, other: Any) -> bool:
    if hasattr(one, "identical"):
        return bool(one.identical(other))
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other, equal_nan=True)
    return bool(one == other)


def make_kinds(root: Path) -> dict[str, Kind]:
    """Write a file of each kind; return how they are read."""
    from freshband import Coordinator, load_result, save_result, simulate
    from freshband._keeping import KeptRuns
    from freshband.channels._reading import read
    from freshband.cli._training import read_file

    coordinator = Coordinator("glr-cucb", 3, 5)
    for _ in range(40):
        coordinator.plan()
        coordinator.observe([True, False, None])
    coordinator.save(root / "state.npz")
    result = simulate("piecewise", "random,cucb", rounds=60, runs=2, progress=False, threads=1)
    save_result(result, root / "air.nc")
    kept = KeptRuns(root / "it", {"a": 1})
    kept.save(0, {"x": np.arange(30.0)})
    rows = np.random.default_rng(0).integers(0, 2, (40, 5))
    text = "\n".join(",".join(map(str, row)) for row in rows.tolist()).encode()
    (root / "trace.csv").write_bytes(text)
    (root / "trace.csv.gz").write_bytes(gzip.compress(text))
    np.save(root / "trace.npy", rows)
    np.savez_compressed(root / "trace.npz", x=rows)
    (root / "mine.toml").write_text("rounds = 3\nclient_lr = 0.1\n[partition]\nalpha = [1, 2]\n")

    def trace(name: str) -> Callable[[], Any]:
        return lambda: read(str(root / name), None, None, None).values

    kinds = {
        "coordinator": Kind(
            root / "state.npz", lambda: Coordinator.load(root / "state.npz").to_bytes()
        ),
        "result": Kind(root / "air.nc", lambda: load_result(root / "air.nc")),
        "kept run": Kind(root / "it.runs" / "run-000000.npz", lambda: _content(kept.load(0))),
        "settings": Kind(
            root / "mine.toml", lambda: str(vars(read_file(root / "mine.toml"))), checked=False
        ),
    }
    for name in ("trace.csv", "trace.csv.gz", "trace.npy", "trace.npz"):
        kinds[name] = Kind(root / name, trace(name), checked=name.endswith((".gz", ".npz")))
    with suppress(ImportError):
        from pyarrow import parquet, table

        parquet.write_table(table({str(n): rows[:, n] for n in range(5)}), root / "trace.parquet")
        kinds["trace.parquet"] = Kind(root / "trace.parquet", trace("trace.parquet"), checked=False)
    return kinds | _of_service(root) | _of_training(root)


def _of_service(root: Path) -> dict[str, Kind]:
    from freshband.service.journal import Journal

    path, written = root / "state.journal", [{"line": number} for number in range(20)]

    def read() -> bool:
        journal = Journal(path)
        try:
            found = journal.read()
        finally:
            journal.close()
        return found == written[: len(found)]  # that lines are missing at the end cannot be seen

    journal = Journal(path)
    journal.begin(json.dumps(written[0]).encode())
    for record in written[1:]:
        journal.append(json.dumps(record).encode())
    journal.close()
    return {"journal": Kind(path, read)}


def _of_training(root: Path) -> dict[str, Kind]:
    try:
        from freshband.federated import Training, start_run
    except ImportError:
        return {}
    from freshband.federated._checkpoint import load_checkpoint
    from freshband.federated._terms import read_terms

    settings = Training(
        dataset="synthetic",
        dataset_options={"shape": (1, 4, 4), "n_classes": 3, "n_train": 60, "n_test": 20},
        model="mlp", model_options={"hidden": [3]}, clients=2, rounds=4, local_steps=1,
        batch_size=4, policy="random", device="cpu", workers=1,
    )  # fmt: skip
    with start_run(settings, root / "run", checkpoint_every=1, keep=1) as run:
        list(run)
    folder = root / "run" / "checkpoints"

    def checkpoint() -> Any:
        found = load_checkpoint(folder)
        tensors = {name: tensor.numpy().tobytes() for name, tensor in found.tensors.items()}
        return found.round, json.dumps(found.facts, sort_keys=True), tensors

    (tensors,) = folder.glob("*.safetensors")
    (facts,) = folder.glob("*.json")
    return {
        "checkpoint, tensors": Kind(tensors, checkpoint),
        "checkpoint, facts": Kind(facts, checkpoint),
        "run.json": Kind(
            root / "run" / "run.json", lambda: str(read_terms(root / "run")), checked=False
        ),
    }


def judge(kind: Kind, data: bytes) -> str:
    """Return what becomes of a mutated file."""
    from freshband.errors import FreshbandError

    kind.path.write_bytes(data)
    began = time.perf_counter()
    try:
        found = kind.read()
        same = not kind.checked or found is AGAIN or _equal(found, kind.known)
        said = "read as before, or has no checksum" if same else "BAD: other numbers"
    except FreshbandError as error:
        said = "refused" if "\n" not in str(error) else "BAD: several lines"
    except Exception as error:  # what is counted here
        said = f"BAD: {type(error).__name__}: {' '.join(str(error).split())[:80]}"
    if time.perf_counter() - began > SLOW:
        said = f"BAD: slower than {SLOW} s"
    kind.path.write_bytes(kind.data)
    return said


def main() -> int:
    """Mutate files and count what becomes of them; return 1 if any was bad."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--kinds", nargs="+", help="only these")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after this time")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="freshband-mutated-"))
    kinds, seen = make_kinds(root), Counter[tuple[str, str]]()
    rng, end, count = np.random.default_rng(chosen.seed), time.monotonic() + chosen.seconds, 0
    names = sorted(chosen.kinds or kinds)
    while count < chosen.files and time.monotonic() < end:
        name = names[count % len(names)]
        seen[name, judge(kinds[name], mutate(kinds[name].data, rng))] += 1
        count += 1
    shutil.rmtree(root, ignore_errors=True)
    for (name, said), times in sorted(seen.items()):
        print(f"{name}: {times} {said}")
    print(f"{count} files of {len(names)} kinds")
    return int(any(said.startswith("BAD") for _, said in seen))


if __name__ == "__main__":
    sys.exit(main())
