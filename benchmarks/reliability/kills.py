"""Long commands killed at random and called again: ``... kills [--kills N] [--jobs N]``.

Each command is started and killed with its whole process group after a random time: by SIGKILL, by
SIGTERM, or by SIGTERM and SIGKILL while it saves. It is called again until it ends by itself. Its
result must then be that of a command that nobody killed, bit for bit but for the times it took. The
service is called by a client that repeats what was not answered: all answers and the final state
must be those of a coordinator in memory.

``--out DIR`` writes all kills as ``kills.json`` and the table as ``kills.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.reliability._killed import COMMANDS, Called, Served, Stop, Subject, TrialError

NAMES = (*COMMANDS, "serve")
SIGNALS = {"SIGKILL": 0.6, "SIGTERM": 0.25, "SIGTERM, SIGKILL": 0.15}
_HEAD = ("command", "kills", *SIGNALS, "with work to resume", "results", "equal")


@dataclass
class Tally:
    """What became of a command."""

    name: str
    wanted: int
    whole: dict[str, str] = field(default_factory=dict)
    begins: float = 0.0  # seconds until it keeps something
    lasts: float = 0.0
    reserved: int = 0
    trials: int = 0
    equal: int = 0
    kills: list[dict[str, object]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def row(self) -> list[str]:
        """Return its row of the table."""
        by, kept = Counter(each["how"] for each in self.kills), [k["kept"] for k in self.kills]
        counts = [len(self.kills), *(by[how] for how in SIGNALS), sum(map(bool, kept))]
        return [f"`{self.name}`", *map(str, counts), str(self.trials), str(self.equal)]


def subject(name: str, folder: Path) -> Subject:
    """Return a command in a new folder."""
    return Served(folder) if name == "serve" else Called(COMMANDS[name], folder)


class Killer:
    """Kills commands, several at a time, until each was killed as often as wanted."""

    def __init__(self, names: Iterable[str], wanted: int, seed: int, until: float) -> None:
        self.tallies = {name: Tally(name, wanted) for name in names}
        self._seed, self._until, self._lock = seed, until, threading.Lock()

    def compile(self, name: str) -> None:
        """Run a command undisturbed, and keep its result as what all others must equal."""
        folder = _new_folder(name)
        self.tallies[name].whole = _finish(subject(name, folder))
        shutil.rmtree(folder)

    def measure(self, names: Iterable[str], pool: ThreadPoolExecutor) -> None:
        """Find when each command begins to keep things and when it ends, all at the same time."""
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in self.tallies}
        for name, times in pool.map(self._time, names):
            found[name].append(times)
        for name, tally in self.tallies.items():
            tally.begins, tally.lasts = map(statistics.median, zip(*found[name], strict=True))

    def _time(self, name: str) -> tuple[str, tuple[float, float]]:
        folder, began = _new_folder(name), time.monotonic()
        times: list[float] = []

        def watch() -> None:
            while not times and not any(folder.iterdir()):
                time.sleep(0.01)
            times.append(time.monotonic() - began)

        watcher = threading.Thread(target=watch)
        watcher.start()
        made = _finish(subject(name, folder))
        times.append(time.monotonic() - began)
        watcher.join()
        _compare(made, self.tallies[name].whole)
        shutil.rmtree(folder)
        return name, (min(times), max(times))

    def work(self, _: int) -> None:
        """Kill whatever has most left to do, until nothing has."""
        while True:
            with self._lock:
                most = max(self.tallies.values(), key=self._left)
                if self._left(most) <= 0 or time.monotonic() > self._until:
                    return
                most.trials += 1
                number = most.trials
            self._trial(most, number)

    @staticmethod
    def _left(tally: Tally) -> float:
        return (tally.wanted - tally.reserved) * tally.lasts

    def _trial(self, tally: Tally, number: int) -> None:
        folder = _new_folder(tally.name)
        rng = np.random.default_rng([self._seed, NAMES.index(tally.name), number])
        killed, finished = subject(tally.name, folder), False
        try:
            while not finished:
                stop = self._reserve(tally, rng)
                before, began = killed.kills, time.monotonic()
                finished = killed.attempt(stop)
                with self._lock:
                    if stop is not None and killed.kills == before:
                        tally.reserved -= 1
                        if before == 0:  # undisturbed: how long it takes now
                            tally.lasts = time.monotonic() - began
                    elif stop is not None:
                        kept = any(folder.iterdir())
                        tally.kills.append({"trial": number, **asdict(stop), "kept": kept})
            _compare(killed.result(), tally.whole)
        except Exception as problem:  # of the command's result too
            with self._lock:
                tally.failures.append(f"trial {number}: {type(problem).__name__}: {problem}")
            return
        with self._lock:
            tally.equal += 1
        shutil.rmtree(folder)

    def _reserve(self, tally: Tally, rng: np.random.Generator) -> Stop | None:
        """Return the next kill, or nothing where there were enough, or the time is over."""
        with self._lock:
            if tally.reserved >= tally.wanted or time.monotonic() > self._until:
                return None
            tally.reserved += 1
        how = str(rng.choice(list(SIGNALS), p=list(SIGNALS.values())))
        after = float(rng.uniform(0.8 * tally.begins, tally.lasts))
        return Stop(after, how, float(rng.uniform(0, 0.1)))


def _compare(made: dict[str, str], whole: dict[str, str]) -> None:
    differs = {name for name, _ in made.items() ^ whole.items()}
    if differs:
        raise TrialError(f"the result differs in {sorted(differs)}")


def _finish(killed: Subject) -> dict[str, str]:
    killed.attempt(None)
    return killed.result()


def _new_folder(name: str) -> Path:
    return Path(tempfile.mkdtemp(prefix=f"{name}-"))


def table(tallies: Iterable[Tally]) -> str:
    """Return the table of the page on reliability."""
    rows = [_HEAD, ["---"] * len(_HEAD), *(tally.row() for tally in tallies)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def main() -> int:
    """Kill commands; return 1 if a result differs or a command failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="of each command")
    parser.add_argument("--commands", nargs="+", default=list(NAMES), choices=NAMES)
    parser.add_argument("--jobs", type=int, default=1, help="commands at a time")
    parser.add_argument("--seconds", type=float, default=1e9, help="after which none is killed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder for kills.json and kills.md")
    chosen = parser.parse_args()
    began = time.monotonic()
    killer = Killer(chosen.commands, chosen.kills, chosen.seed, began + chosen.seconds)
    with ThreadPoolExecutor(chosen.jobs) as pool:
        list(pool.map(killer.compile, chosen.commands))
        print(f"compiled after {time.monotonic() - began:.0f} s", flush=True)
        copies = max(1, chosen.jobs // len(chosen.commands))
        killer.measure(chosen.commands * copies, pool)
        for tally in killer.tallies.values():
            print(f"{tally.name}: keeps from {tally.begins:.1f} s on, {tally.lasts:.1f} s in all")
        sys.stdout.flush()
        list(pool.map(killer.work, range(chosen.jobs)))
    tallies, took = list(killer.tallies.values()), time.monotonic() - began
    text = table(tallies)
    print(f"{text}{took:.0f} s, {chosen.jobs} at a time, {os.cpu_count()} cores")
    for tally in tallies:
        print("\n".join(f"{tally.name}, {failure}" for failure in tally.failures[:3]), end="")
    if chosen.out is not None:
        chosen.out.mkdir(parents=True, exist_ok=True)
        (chosen.out / "kills.md").write_text(text)
        facts = {"seconds": took, "jobs": chosen.jobs, "cores": os.cpu_count(),
                 "machine": platform.processor() or platform.machine(), "seed": chosen.seed,
                 "python": platform.python_version()}  # fmt: skip
        held = {**facts, "commands": [asdict(tally) for tally in tallies]}
        (chosen.out / "kills.json").write_text(json.dumps(held, indent=1) + "\n")
    return int(any(tally.failures for tally in tallies))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="freshband-kills-") as tempfile.tempdir:
        sys.exit(main())
