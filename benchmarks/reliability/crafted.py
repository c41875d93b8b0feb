"""Coordinator files changed on purpose, with checksums that fit: ``... crafted [--files N]``.

Each file has one number, or a few, of its arrays or its header replaced by others: extremes, values
just out of range, values of other places. A file is refused with one line, or the coordinator in it
plays on. The kernels run as plain Python, where every index out of range is an error and none
damages memory.
"""

from __future__ import annotations

import os
import sys

if os.environ.get("NUMBA_DISABLE_JIT") != "1":  # before anything is compiled
    os.environ["NUMBA_DISABLE_JIT"] = "1"
    os.execv(
        sys.executable, [sys.executable, "-m", "benchmarks.reliability.crafted", *sys.argv[1:]]
    )

import argparse
import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from freshband import Coordinator
from freshband._packed import checksum
from freshband.errors import FileError, ParameterError
from freshband.schedulers.base import registry
from freshband.states import _checks, _nested

SETUPS: tuple[tuple[str, dict[str, Any]], ...] = (  # beside every scheduler by itself
    ("cucb", {"options": {"mean_window": 7}}),
    ("glr-cucb:paper+aa", {"horizon": 500}),
    ("glr-cucb:fresh+fixed", {"n_clients": 7, "max_transmissions": 2}),
    ("glr-klucb+random", {"silence": "loss", "proof_of_life": "delivery"}),
    ("m-exp3+aa-sum", {}),
    ("m-exp3:paper+aa", {"horizon": 500}),
    ("random+fixed", {"n_clients": 7}),
    ("kl-ucb+rotate", {"n_clients": 7, "proof_of_life": "none"}),
    ("thompson+priority", {"max_delay": 3}),
    ("bayes+age", {"weights": [1.0, 9.0, 0.2], "max_transmissions": 2}),
    ("bayes", {"links": "differ"}),
    ("bayes+priority", {"links": "differ", "n_clients": 7}),
)
WHOLE = (-(2**63), -(2**31), -1, 0, 1, 2, 7, 100, 2**31, 2**62, 2**63 - 1)
REAL = (float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 0.5, 1e-320, 1e300)


def outcome(rng: np.random.Generator, n_clients: int) -> list[bool | None]:
    """Return acknowledgements, some of which are late."""
    return [None if rng.random() < 0.2 else bool(rng.random() < 0.6) for _ in range(n_clients)]


def setups() -> list[tuple[str, dict[str, Any]]]:
    """Return all that is tried: every registered scheduler that learns, and some with options."""
    return [*((name, {}) for name in registry if not registry[name].sees_channels), *SETUPS]


def play(coordinator: Coordinator, rounds: int, rng: np.random.Generator) -> None:
    """Play rounds with outcomes that are late and clients that join, leave or are not there."""
    worth = coordinator.policy.needs_contributions
    for t in range(rounds):
        if t % 9 == 4 and coordinator.policy.grows:
            coordinator.join()
        there = [client for client in coordinator.client_ids if client is not None]
        if t % 9 == 8 and len(there) > 2:
            coordinator.leave(there[-1])
        n_clients = coordinator.n_clients
        coordinator.plan(
            contributions=rng.random(n_clients) if worth else None,
            present=None if t % 3 else rng.random(n_clients) < 0.8,
            available=None if t % 4 else rng.random(coordinator.n_channels) < 0.8,
        )
        coordinator.observe(outcome(rng, n_clients))
        for late in coordinator.open_rounds[:1] if t % 5 == 0 else ():
            with suppress(ParameterError):  # where it contradicts what is known
                coordinator.observe([True] * n_clients, round=late)


def original(policy: str, more: Mapping[str, Any], planned: bool) -> Coordinator:
    """Return a coordinator in the middle of a run, with an open plan or without one."""
    coordinator = Coordinator(policy, **{"n_clients": 3, "n_channels": 5, **more})
    rng = np.random.default_rng(0)
    play(coordinator, 30, rng)
    if planned:
        worth = rng.random(coordinator.n_clients)
        coordinator.plan(contributions=worth if coordinator.policy.needs_contributions else None)
    return coordinator


def craft(data: bytes, rng: np.random.Generator) -> bytes:
    """Return the file with something in it replaced, and a checksum that fits."""
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


def restore_and_play(data: bytes, rounds: int) -> str:
    """Load a file and play on; return what became of it."""
    try:
        coordinator = Coordinator.from_bytes(data)
    except FileError as error:
        return "refused" if "\n" not in str(error) else "refused in several lines"
    rng = np.random.default_rng(1)
    if coordinator.pending is not None:
        coordinator.observe(outcome(rng, coordinator.n_clients))
    play(coordinator, rounds, rng)
    return "played on"


def untried(files: Iterable[Coordinator]) -> set[str]:
    """Return the declared types of states that are in none of the files."""
    parts = ("_fleet", "_scheduler", "_matching")
    held = {
        type(state) for each in files for part in parts for state in _nested(getattr(each, part))
    }
    return {kind.__name__ for kind in _checks.keys() - held}


def main() -> int:
    """Craft files and count what becomes of them; return 1 if any did harm."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    rng, seen = np.random.default_rng(chosen.seed), Counter[str]()
    files = [original(*setup, planned) for planned in (False, True) for setup in setups()]
    for name in untried(files):
        seen[f"harm: no file has a {name}"] += 1
    with np.errstate(all="ignore"):
        for at in range(chosen.files):
            policy = files[at % len(files)].policy.text
            data = craft(files[at % len(files)].to_bytes(), rng)
            try:
                seen[restore_and_play(data, chosen.rounds)] += 1
            except (ArithmeticError, ValueError) as error:  # of numbers alone: no index, no memory
                seen[f"a number out of range: {type(error).__name__}"] += 1
            except Exception as error:  # everything else is a hole
                seen[f"harm: {policy}: {type(error).__name__}: {error}"] += 1
    print(f"{len(files)} coordinators with {len(_checks)} types of states")
    for what, count in seen.most_common():
        print(f"{count} {what}")
    return int(any(what.startswith(("harm", "refused in")) for what in seen))


if __name__ == "__main__":
    sys.exit(main())
