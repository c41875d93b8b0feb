"""Coordinator files changed on purpose, with checksums that fit: ``... crafted [--files N]``.

Each file has one number, or a few, of its arrays or its header replaced by others: extremes, values
just out of range, values of other places. A file is refused with one line, or the coordinator in it
plays on. The kernels run as plain Python, where every index out of range is an error and none
damages memory.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections import Counter
from typing import Any

import numpy as np

POLICIES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("cucb", {"options": {"mean_window": 7}}),
    ("glr-cucb", {}),
    ("glr-cucb:paper+aa", {"horizon": 500}),
    ("m-exp3", {}),
    ("m-exp3+aa-sum", {}),
    ("random+fixed", {"n_clients": 7}),
    ("kl-ucb+rotate", {"n_clients": 7}),
    ("thompson", {"max_delay": 3}),
    ("bayes", {}),
    ("bayes", {"links": "differ"}),
)
WHOLE = (-(2**63), -(2**31), -1, 0, 1, 2, 7, 100, 2**31, 2**62, 2**63 - 1)
REAL = (float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 0.5, 1e-320, 1e300)


def outcome(rng: np.random.Generator, n_clients: int) -> list[bool | None]:
    """Return acknowledgements, some of which are late."""
    return [None if rng.random() < 0.2 else bool(rng.random() < 0.6) for _ in range(n_clients)]


def originals(rng: np.random.Generator) -> list[bytes]:
    """Return files of coordinators in the middle of a run, half of them with an open plan."""
    from freshband import Coordinator

    found = []
    for policy, more in POLICIES:
        for planned in (False, True):
            coordinator = Coordinator(policy, **{"n_clients": 3, "n_channels": 5, **more})
            for _ in range(30):
                coordinator.plan()
                coordinator.observe(outcome(rng, coordinator.n_clients))
            if planned:
                coordinator.plan()
            found.append(coordinator.to_bytes())
    return found


def craft(data: bytes, rng: np.random.Generator) -> bytes:
    """Return the file with something in it replaced, and a checksum that fits."""
    from freshband._packed import checksum

    with np.load(io.BytesIO(data)) as archive:
        held = {name: archive[name].copy() for name in archive.files}
    header = json.loads(str(held.pop("header")))
    held.pop("checksum")
    for _ in range(int(rng.integers(1, 4))):
        if rng.random() < 0.15:
            _craft_header(header, rng)
        else:
            _craft_array(held, rng)
    text, buffer = json.dumps(header, sort_keys=True), io.BytesIO()
    sums = np.array(checksum(text, held))
    np.savez(buffer, allow_pickle=False, header=np.array(text), checksum=sums, **held)
    return buffer.getvalue()


def _craft_header(header: dict[str, Any], rng: np.random.Generator) -> None:
    names = [name for name in header if isinstance(header[name], int | float | bool | None)]
    name = names[rng.integers(len(names))]
    given = header[name]
    if isinstance(given, bool):
        header[name] = not given
    elif rng.random() < 0.5 and isinstance(given, int):
        header[name] = given + int(rng.integers(-2, 3))
    else:
        header[name] = WHOLE[rng.integers(len(WHOLE))]


def _craft_array(held: dict[str, Any], rng: np.random.Generator) -> None:
    names = sorted(name for name in held if held[name].size)
    name = names[rng.integers(len(names))]
    array = held[name]
    if rng.random() < 0.05:  # another shape
        held[name] = array[:-1] if rng.random() < 0.5 else np.concatenate([array, array])
        return
    fields = array.dtype.names
    part = array if fields is None else array[fields[rng.integers(len(fields))]]
    flat = part.reshape(-1)
    if not np.shares_memory(flat, array):
        flat, place = part, tuple(int(rng.integers(size)) for size in part.shape)
    else:
        place = (int(rng.integers(len(flat))),)
    if part.dtype.kind == "f":
        flat[place] = REAL[rng.integers(len(REAL))]
    elif rng.random() < 0.5:
        limits = np.iinfo(part.dtype)
        flat[place] = min(max(int(flat[place]) + int(rng.integers(-3, 4)), limits.min), limits.max)
    else:
        limits = np.iinfo(part.dtype)
        flat[place] = min(max(WHOLE[rng.integers(len(WHOLE))], limits.min), limits.max)


def play(data: bytes, rounds: int) -> str:
    """Load a file and play on; return what became of it."""
    from freshband import Coordinator
    from freshband.errors import FileError

    try:
        coordinator = Coordinator.from_bytes(data)
    except FileError as error:
        return "refused" if "\n" not in str(error) else "refused in several lines"
    rng = np.random.default_rng(1)
    if coordinator.pending is not None:
        coordinator.observe(outcome(rng, coordinator.n_clients))
    for _ in range(rounds):
        coordinator.plan()
        coordinator.observe(outcome(rng, coordinator.n_clients))
    return "played on"


def main() -> int:
    """Craft files and count what becomes of them; return 1 if any did harm."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    if os.environ.get("NUMBA_DISABLE_JIT") != "1":
        os.environ["NUMBA_DISABLE_JIT"] = "1"
        os.execv(
            sys.executable, [sys.executable, "-m", "benchmarks.reliability.crafted", *sys.argv[1:]]
        )
    rng = np.random.default_rng(chosen.seed)
    files, seen = originals(rng), Counter[str]()
    with np.errstate(all="ignore"):
        for at in range(chosen.files):
            data = craft(files[at % len(files)], rng)
            try:
                seen[play(data, chosen.rounds)] += 1
            except (ArithmeticError, ValueError) as error:  # of numbers alone: no index, no memory
                seen[f"a number out of range: {type(error).__name__}"] += 1
            except Exception as error:  # everything else is a hole
                seen[f"harm: {type(error).__name__}: {error}"] += 1
    for what, count in seen.most_common():
        print(f"{count} {what}")
    return int(any(what.startswith(("harm", "refused in")) for what in seen))


if __name__ == "__main__":
    sys.exit(main())
