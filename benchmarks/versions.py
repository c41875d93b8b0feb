"""A scheduler of this version beside that of another, on the same air.

``python -m benchmarks.versions DIR`` plays it from the sources in ``DIR/src``, such as those of
``git worktree add DIR REVISION``, and from these: regret of both, and their ratio with its paired
standard error. No choice was made on these seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from freshband.statistics import standard_error

HERE = Path(__file__).parent.parent
# Channel model, its options, clients, rounds, runs.
AIRS: Mapping[str, tuple[str, Mapping[str, Any], int, int, int]] = {
    "Fig. 2(a)": ("fig2", {}, 2, 20_000, 800),
    "fig3-extreme": ("fig3-extreme", {}, 4, 250, 800),
    "fig3-piecewise": ("fig3-piecewise", {}, 20, 250, 400),
    "the same, N=100": ("fig3-piecewise", {"n_channels": 100}, 20, 250, 200),
    **{
        f"hazard {hazard}": ("switching", {"hazard": hazard}, 2, 20_000, 64)
        for hazard in (0.002, 0.01, 0.05, 0.2)
    },
    "sweeping jammer": ("jammer", {}, 2, 20_000, 64),
    "random jammer": ("jammer", {"pattern": "random"}, 2, 20_000, 64),
    "blocked in 2 of 7 rounds": ("periodic", {}, 2, 10_000, 64),
}
# Runs in the process of either version. The means of periodic air are written out, because it is
# a channel model in later versions only.
PLAY = """
import json, sys
import numpy as np
from freshband import simulate
from freshband.channels import Table
channels, options, clients, rounds, runs, policy, seed = json.loads(sys.argv[1])
def play(channels, runs, seed, **options):
    result = simulate(channels, [policy], clients=clients, rounds=rounds, runs=runs, seed=seed,
                      points=1, progress=False, **options)
    return result.regret.values[0].tolist()
if channels == "periodic":
    rng, found = np.random.default_rng(seed), []
    for run in range(runs):
        phase = (np.arange(rounds)[:, None] + 3 * np.arange(5)) % 7
        means = np.where(phase < 2, 0.02, rng.uniform(0.5, 0.95, 5))
        found += play(Table(means=means), 1, seed + run)
else:
    found = play(channels, runs, seed, channel_options=options)
print(json.dumps(found))
"""


def regret(folder: Path, *air: Any) -> NDArray[np.float64]:
    """Return the regret of every run, played by the sources in a folder."""
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [sys.executable, "-c", PLAY, json.dumps(air)],
            env={**os.environ, "PYTHONPATH": str(folder / "src"), "NUMBA_CACHE_DIR": cache},
            capture_output=True,
            text=True,
            check=True,
        )
    return np.array(json.loads(done.stdout))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="a checkout of the other version")
    parser.add_argument("--policy", default="bayes")
    parser.add_argument("--seed", type=int, default=55_511)
    parser.add_argument("--only", default="", help="air whose name contains this")
    args = parser.parse_args()
    print("air | other | this | ratio")
    for name, air in AIRS.items():
        if args.only not in name:
            continue
        other, this = (regret(each, *air, args.policy, args.seed) for each in (args.folder, HERE))
        ratio = this.mean() / other.mean()
        error = standard_error(this - ratio * other) / other.mean()
        shown = f"{other.mean():,.0f} | {this.mean():,.0f} | {ratio:.3f} ± {error:.3f}"
        print(f"{name} | {shown}", flush=True)


if __name__ == "__main__":
    main()
