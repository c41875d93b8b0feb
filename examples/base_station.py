"""Embed the coordinator: four devices share six unreliable uplinks.

The radio here is simulated; replace `transmit` by your own. The process may be killed at any time;
it continues from its last saved round.
"""

import sys
from pathlib import Path

import numpy as np

from freshband import Coordinator

N_DEVICES, N_UPLINKS, ROUNDS = 4, 6, 2000
QUALITY = np.array([[0.9, 0.8, 0.7, 0.6, 0.3, 0.2], [0.2, 0.3, 0.9, 0.8, 0.7, 0.6]])


def transmit(uplinks: np.ndarray, t: int, rng: np.random.Generator) -> list[bool | None]:
    """Send one update per device; None where the acknowledgement itself was lost."""
    delivered = rng.random(len(uplinks)) < QUALITY[int(t >= ROUNDS // 2)][uplinks]
    heard = rng.random(len(uplinks)) < 0.95
    return [bool(d) if h else None for d, h in zip(delivered, heard, strict=True)]


def main(state: Path) -> None:
    """Serve ROUNDS rounds and save the state every 100."""
    if state.exists():
        coordinator = Coordinator.load(state)
        print(f"continuing after round {coordinator.round}")
    else:
        coordinator = Coordinator("glr-cucb+aa", n_clients=N_DEVICES, n_channels=N_UPLINKS, seed=1)
    rng = np.random.default_rng([2, coordinator.round])
    while coordinator.round < ROUNDS:
        uplinks = coordinator.plan()
        changed = coordinator.observe(transmit(uplinks, coordinator.round, rng))
        if changed is not None:
            print(f"round {coordinator.round}: uplink {changed} changed, learning afresh")
        if coordinator.round % 100 == 0:
            coordinator.save(state)
    print(f"ages after {ROUNDS} rounds: {coordinator.ages.tolist()}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "base_station.npz"))
