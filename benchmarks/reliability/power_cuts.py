"""Power cuts at every operation on files: ``... power_cuts [--kinds NAME...] [--rounds N]``.

A program writes files as usual while this one notes what a disk would keep: the bytes of a file as
of its last fsync, and the names in a folder as of the last fsync of the folder. The power is cut
before and after each operation, in the two worst ways: nothing that was not synced has reached the
disk, or all names have but none of the bytes. Then the program is continued from what is left, and
nothing may be lost of which it said that it was saved.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Tree = dict[str, "bytes | None"]  # by path: what a file holds, None for a folder


class Disk:
    """What a disk under a folder would keep, and everything it might hold after a power cut."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.told = 0  # the newest thing that was said to be saved
        self.cuts: list[tuple[int, Tree]] = []  # what was told by then, and what is left
        self._bytes: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        self._open: list[int] = []  # keeps numbers of files from being used again
        self._sync_folder(root)

    def _number(self, path: Path) -> int:
        handle = os.open(path, os.O_RDONLY)
        self._open.append(handle)
        return os.fstat(handle).st_ino

    def _sync_folder(self, folder: Path) -> None:
        numbers = {each: self._number(each) for each in folder.iterdir()}
        self._names[self._number(folder)] = {each.name: n for each, n in numbers.items()}
        for each, number in numbers.items():
            if each.is_dir():
                self._names.setdefault(number, {})  # which is empty until it is synced itself

    def synced(self, handle: int) -> None:
        """Note that a file or a folder was synced."""
        path = Path(f"/proc/self/fd/{handle}").readlink()
        if self.root in (path, *path.parents):
            if path.is_dir():
                self._sync_folder(path)
            else:
                self._bytes[self._number(path)] = path.read_bytes()

    def cut(self) -> None:
        """Note what is left if the power is cut now."""
        kept: Tree = {}
        self._walk(self.root.stat().st_ino, "", kept)
        named: Tree = {
            str(path.relative_to(self.root)): None
            if path.is_dir()
            else self._bytes.get(path.stat().st_ino, b"")
            for path in self.root.rglob("*")
        }
        for tree in (kept, named):
            if not self.cuts or self.cuts[-1] != (self.told, tree):
                self.cuts.append((self.told, tree))

    def _walk(self, folder: int, prefix: str, tree: Tree) -> None:
        for name, number in self._names.get(folder, {}).items():
            inside = number in self._names
            tree[prefix + name] = None if inside else self._bytes.get(number, b"")
            if inside:
                self._walk(number, f"{prefix}{name}/", tree)

    def close(self) -> None:
        """Give the handles back."""
        for handle in self._open:
            os.close(handle)


@contextmanager
def recorded(root: Path) -> Iterator[Disk]:
    """Note what a disk would keep of what happens under a folder."""
    disk, real = Disk(root), {name: getattr(os, name) for name in _WATCHED}

    def watched(name: str) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            disk.cut()
            result = real[name](*args, **more)
            if name == "fsync":
                disk.synced(args[0])
            disk.cut()
            return result

        return call

    for name in _WATCHED:
        setattr(os, name, watched(name))
    try:
        yield disk
    finally:
        for name, call in real.items():
            setattr(os, name, call)
        disk.close()


_WATCHED = ("fsync", "mkdir", "rename", "replace", "unlink")


def rebuild(tree: Tree) -> Path:
    """Return a new folder with what is left."""
    root = Path(tempfile.mkdtemp(prefix="freshband-cut-"))
    for name, data in sorted(tree.items()):
        if data is None:
            (root / name).mkdir()
        else:
            (root / name).write_bytes(data)
    return root


def _coordinator(root: Path, disk: Disk | None, rounds: int) -> int:
    """Save after every second round; return the round that is there, and its line in the log."""
    from freshband import Coordinator
    from freshband.fleet.log import Log

    path, log = root / "deep" / "state.npz", Log(root / "log", max_bytes=200)  # three lines
    if disk is None:
        there = Coordinator.load(path, log=log).round if path.exists() else 0
        files = [each for each in (root / "log.1", root / "log") if each.exists()]
        lines = [json.loads(line) for each in files for line in each.read_bytes().splitlines()]
        wanted = [there - 1, there] if there else []
        assert [line["round"] for line in lines][len(lines) - len(wanted) :] == wanted
        return there
    coordinator = Coordinator("cucb", 2, 4, log=log)
    for _ in range(rounds):
        for _ in range(2):
            coordinator.plan()
            coordinator.observe([True, False])
        coordinator.save(path)
        disk.told = coordinator.round
    return coordinator.round


def _training(root: Path, disk: Disk | None, rounds: int) -> int:
    """Train with a checkpoint per round; return the round from which it goes on."""
    from freshband.federated import Training, resume_run, start_run

    out = root / "run"
    if disk is None:
        if not (out / "run.json").exists():
            return 0
        with resume_run(out) as run:
            there = run.round
            assert len(list(run)) == run.settings.rounds - there
            assert run.finished
            return there
    settings = Training(
        dataset="synthetic",
        dataset_options={"shape": (1, 4, 4), "n_classes": 3, "n_train": 60, "n_test": 20},
        model="mlp", model_options={"hidden": [3]}, clients=2, rounds=rounds, local_steps=1,
        batch_size=4, policy="random", device="cpu", workers=1,
    )  # fmt: skip
    with start_run(settings, out, checkpoint_every=1) as run:
        for record in run:
            disk.told = record.round
    return rounds


def _simulation(root: Path, disk: Disk | None, rounds: int) -> int:
    """Simulate with runs kept; return how many are there."""
    from freshband import load_result, save_result, simulate
    from freshband._keeping import KeptRuns, forget_runs

    path = root / "air.nc"
    if path.exists():
        return load_result(path).sizes["run"]
    if disk is None:
        folder = root / "air.nc.runs"
        return len(list(folder.glob("run-*.npz"))) if folder.exists() else 0
    save, before = KeptRuns.save, disk.told

    def told(self: KeptRuns, run: int | str, arrays: Any) -> None:
        save(self, run, arrays)
        disk.told += 1

    KeptRuns.save = told  # type: ignore[method-assign]  # to know when a run counts as saved
    try:
        result = simulate(
            "piecewise", "random", rounds=50, runs=rounds, threads=1, progress=False, keep=path
        )
        save_result(result, path)
        forget_runs(path)
    finally:
        KeptRuns.save = save  # type: ignore[method-assign]  # as it was
    return before


KINDS = {"coordinator": _coordinator, "training": _training, "simulation": _simulation}


def main() -> int:
    """Cut the power everywhere; return 1 if anything was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--rounds", type=int, default=6)
    chosen, lost = parser.parse_args(), 0
    for kind in chosen.kinds:
        root = Path(tempfile.mkdtemp(prefix="freshband-disk-"))
        with recorded(root) as disk:
            KINDS[kind](root, disk, chosen.rounds)
        for told, tree in disk.cuts:
            try:
                there = KINDS[kind](rebuild(tree), None, chosen.rounds)
            except Exception as error:  # whatever is wrong is a loss
                print(f"{kind}: {type(error).__name__}: {error}")
                there = -1
            lost += there < told
        print(f"{kind}: {len(disk.cuts)} power cuts")
    print(f"{lost} lost something")
    return int(lost > 0)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="freshband-cuts-") as tempfile.tempdir:
        sys.exit(main())
