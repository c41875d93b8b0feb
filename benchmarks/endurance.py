"""Ten million rounds of `bayes` on airs that strain its numbers: nothing may leave its range.

``python -m benchmarks.endurance [--rounds 10000000]``
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

from freshband._lending import Caller
from freshband._policy import parse_policy
from freshband._rounds import open_desk
from freshband._seeding import Role, generator
from freshband.channels import Block
from freshband.channels.adversary import Still
from freshband.simulation._loop import open_tally, run_block
from freshband.states import reserve

BLOCK = 100_000
SIZES = ((5, 2), (30, 20), (40, 1))
AIRS = ("still", "all or nothing", "alternating", "periodic", "each by itself")


def means(air: str, t: int, n_channels: int, rng: np.random.Generator) -> Any:
    """Return the success rates of a block that begins after round t."""
    rounds, channels = np.arange(t, t + BLOCK)[:, None], np.arange(n_channels)
    if air == "still":
        return np.full((BLOCK, n_channels), 0.3) + 0.4 * (channels == 1)
    if air == "all or nothing":  # a million good rounds, then a million bad ones
        return np.full((BLOCK, n_channels), float(t // 1_000_000 % 2 == 0))
    if air == "alternating":
        return np.broadcast_to((rounds + channels) % 2, (BLOCK, n_channels)).astype(np.float64)
    if air == "periodic":  # of 7 rounds, two in which a channel never works, else it always does
        return ((rounds + 3 * channels) % 7 > 1).astype(np.float64)
    changes = rng.random((BLOCK, n_channels)) < 0.02  # each channel switches by itself
    found = np.maximum.accumulate(np.where(changes, np.arange(BLOCK)[:, None], 0), axis=0)
    return np.take_along_axis(rng.random((BLOCK, n_channels)), found, axis=0)


def play(air: str, n_channels: int, clients: int, rounds: int) -> Iterator[str]:
    """Play all rounds; yield what is wrong."""
    rng, nature = generator(0, Role.POLICY), np.random.default_rng(1)
    scheduler, matching = parse_policy("bayes").start(clients, n_channels, rng, rounds)
    desk, call = open_desk(clients, n_channels), Caller(run_block)
    tally, jammer = open_tally(clients, np.array([rounds])), Still(np.zeros(0, np.uint8))
    for t in range(0, rounds, BLOCK):
        shown = means(air, t, n_channels, nature)
        block = Block((nature.random(shown.shape) < shown).astype(np.uint8), shown)
        scheduler = reserve(scheduler, BLOCK)
        call((scheduler, matching, desk, tally, jammer, rng, *block), t)
    for name, array in (("mean", scheduler.mean), ("spread", scheduler.spread)):
        if not (np.isfinite(array).all() and (array >= 0).all() and (array <= 1).all()):
            yield f"{name} is {array}"
    for name, part in (("alone", scheduler.alone), ("together", scheduler.together)):
        total = part.weight.sum(axis=2) * part.scale
        if not np.allclose(total, 1.0, atol=1e-9):
            yield f"weights of {name} sum to {total.min()} .. {total.max()}"
    beliefs = {
        "trust": scheduler.trust.now,
        "priors": scheduler.priors.belief,
        "lengths of periods": scheduler.periods.belief,
    }
    for name, array in beliefs.items():
        if not (np.abs(array.sum(axis=-1) - 1.0).max() < 1e-9 and (array >= 0).all()):
            yield f"{name} is {array}"


def report(case: tuple[str, int, int, int]) -> str:
    """Play one case, and say in a line what is wrong."""
    air, n_channels, clients, rounds = case
    found = "; ".join(play(*case)) or "all in range"
    return f"N={n_channels} M={clients}, {air}, {rounds:,} rounds: {found}"


def main() -> None:
    """Play every air at every size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10_000_000)
    parser.add_argument("--jobs", type=int, default=1, help="cases played at a time")
    args = parser.parse_args()
    cases = [(air, *size, args.rounds) for size in SIZES for air in AIRS]
    with ProcessPoolExecutor(args.jobs) as pool:
        for line in pool.map(report, cases):
            print(line, flush=True)


if __name__ == "__main__":
    main()
