"""Commands killed at random and called again: ``... kills [--kills N] [--commands NAME...]``.

Each command is started, killed with SIGKILL or SIGTERM after a random time, and called again until
it ends by itself. Its result must then be that of a command that nobody killed, number by number.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

_TRAIN = [
    "--dataset", "synthetic", "--set", "dataset.shape=[1,4,4]", "--set", "dataset.n_classes=3",
    "--set", "dataset.n_train=90", "--set", "dataset.n_test=30", "--model", "mlp",
    "--clients", "3", "--rounds", "120", "--device", "cpu", "--set", "workers=1",
]  # fmt: skip
_SIMULATE = [
    "--policies", "random,cucb,glr-cucb", "--rounds", "150000", "--runs", "12", "--threads", "1",
]  # fmt: skip
COMMANDS: dict[str, tuple[list[str], list[str], str]] = {  # first call, later calls, result
    "train": (
        ["train", *_TRAIN, "--out", "run", "--checkpoint-every", "5", "--quiet"],
        ["train", "--resume", "run", "--quiet"],
        "run/result.nc",
    ),
    "compare": (
        [
            "compare",
            *_TRAIN,
            "--policies",
            "random,cucb",
            "--runs",
            "6",
            "--out",
            "it.nc",
            "--quiet",
        ],
        [],
        "it.nc",
    ),
    "simulate": (["simulate", *_SIMULATE, "--out", "air.nc", "--quiet"], [], "air.nc"),
    "reproduce": (["reproduce", "fig2a", "--scale", "quick", "--out", "."], [], "."),
}


def call(arguments: list[str], folder: Path, seconds: float | None, number: int) -> bool:
    """Run a command in a folder, kill it after some seconds; return whether it ended by itself."""
    process = subprocess.Popen(
        [sys.executable, "-m", "freshband", *arguments],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    try:
        said = process.communicate(timeout=seconds)[1]
    except subprocess.TimeoutExpired:
        process.send_signal(number)
        said = process.communicate()[1]
        return False
    if process.returncode:
        raise RuntimeError(said.decode())
    return True


def results(folder: Path, path: str) -> list[Any]:
    """Return the results in a folder, without the times they took."""
    import xarray as xr

    found = sorted(folder.glob(f"{path}/*.nc" if path == "." else path))
    timed = ["seconds", "rounds_per_second"]
    return [
        xr.load_dataset(each, engine="h5netcdf").drop_vars(timed, errors="ignore") for each in found
    ]


def main() -> int:
    """Kill commands; return 1 if a result differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="of each command")
    parser.add_argument("--commands", nargs="+", default=list(COMMANDS), choices=COMMANDS)
    parser.add_argument("--seconds", type=float, default=1e9, help="of each command, at most")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    rng, wrong = np.random.default_rng(chosen.seed), 0
    for name in chosen.commands:
        first, later, path = COMMANDS[name]
        home = Path(tempfile.mkdtemp(prefix="freshband-whole-"))
        call(first, home, None, 9)
        whole = results(home, path)
        began = time.monotonic()
        call(first, Path(tempfile.mkdtemp(prefix="freshband-timed-")), None, 9)  # compiled by now
        lasts = time.monotonic() - began
        kills = ended = 0
        while kills < chosen.kills and time.monotonic() - began < chosen.seconds:
            folder = Path(tempfile.mkdtemp(prefix="freshband-killed-"))
            done = False
            while not done:
                again = bool(later) and (folder / "run" / "run.json").exists()
                if later and (folder / "run").exists() and not again:
                    shutil.rmtree(folder / "run")
                most = lasts if kills < chosen.kills else None
                number = 9 if rng.random() < 0.5 else 15
                wait = None if most is None else float(rng.uniform(0.2, 1.0) * most)
                done = call(later if again else first, folder, wait, number)
                kills += not done
            ended += 1
            found = results(folder, path)
            same = len(found) == len(whole)
            same &= all(one.equals(other) for one, other in zip(found, whole, strict=False))
            wrong += not same
            shutil.rmtree(folder)
        print(f"{name}: {kills} kills in {ended} runs, {wrong} differ so far", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="freshband-kills-") as tempfile.tempdir:
        sys.exit(main())
