"""A day's worth of rounds through one coordinator: ``... endurance [--rounds N] [--policy P]``.

After every tenth of the rounds it prints the time that a round took in it, median and 99th
percentile, and the memory of the process.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np


def memory() -> float:
    """Return the resident memory of this process, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def main() -> int:
    """Play the rounds; return 1 if memory grew by more than a tenth."""
    from freshband import Coordinator

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10_000_000)
    parser.add_argument("--policy", default="glr-cucb")
    chosen = parser.parse_args()
    coordinator = Coordinator(chosen.policy, 5, 10, seed=0)
    rng = np.random.default_rng(0)
    block = chosen.rounds // 10
    took = np.zeros(block)
    held = []
    for part in range(10):
        rates = rng.random(10)  # the channels change ten times
        for t in range(block):
            lucky = rng.random(5)
            began = time.perf_counter()
            plan = coordinator.plan()
            coordinator.observe(lucky < rates[plan])
            took[t] = time.perf_counter() - began
        held.append(memory())
        middle, slow = np.quantile(took, [0.5, 0.99]) * 1e6
        print(
            f"{(part + 1) * block} rounds: {middle:.1f} µs, 99 % below {slow:.1f} µs, "
            f"{held[-1]:.1f} MB",
            flush=True,
        )
    return int(held[-1] > 1.1 * held[0])


if __name__ == "__main__":
    sys.exit(main())
