"""Links that differ per client: ``python -m benchmarks.links [--instances 16] [--seed 0]``.

Paired runs of `bayes` and of the oracle over the same draws, through the package's verbs: the mean
age over the oracle's for links that are shared, differ fully, differ for a quarter of them, and
differ by an offset of the client's logit.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.measure import interleave
from freshband._jit import entry_point, lend
from freshband.matching.age import Age
from freshband.matching.base import match
from freshband.schedulers.base import reveal, score, select, update
from freshband.schedulers.bayes import Bayes
from freshband.schedulers.oracle import Oracle

__all__ = ["SIZES", "table"]

SIZES = ((6, 10, 4000), (20, 30, 2000))  # clients, channels, rounds
BREAKPOINTS = 5
KINDS = ("shared", "different", "a quarter different", "additive")


@entry_point
def _play(
    scheduler: Any, matching: Any, means: Any, ends: Any, draws: Any, rng: Any, total: Any
) -> None:
    """Play all rounds; ``total`` receives the sum of all ages."""
    scheduler, matching, means, draws = lend(scheduler), lend(matching), lend(means), lend(draws)
    rounds, n_clients, n_channels = draws.shape
    ages, priorities = np.ones(n_clients, np.int64), np.zeros(n_clients)
    chosen, scores = np.zeros(n_channels, np.int64), np.zeros((n_clients, n_channels))
    states = np.zeros((n_clients, n_channels), np.uint8)
    assignment, outcome = np.full(n_clients, -1), np.zeros(n_clients, np.int8)
    overridden = np.zeros(n_clients, np.int8)
    segment = 0
    for t in range(1, rounds + 1):
        while t > ends[segment]:
            segment += 1
        reveal(scheduler, means[segment], states)
        select(scheduler, t, ages, rng, chosen)
        score(scheduler, t, scores)
        match(matching, t, chosen, scores, ages, priorities, rng, assignment)
        for j in range(n_clients):
            channel = assignment[j]
            outcome[j] = draws[t - 1, j, channel] < means[segment, j, channel]
            ages[j] = 1 if outcome[j] == 1 else ages[j] + 1
            total[0] += ages[j]
        update(scheduler, t, assignment, outcome, overridden)


def _draw_means(kind: str, n_clients: int, n_channels: int, rng: np.random.Generator) -> Any:
    """Draw the rates of six segments, shape (6, M, N)."""
    shape = (BREAKPOINTS + 1, n_clients, n_channels)
    of_channel = rng.uniform(0.1, 0.9, (BREAKPOINTS + 1, 1, n_channels))
    of_link = rng.uniform(0.1, 0.9, shape)
    if kind == "different":
        return of_link
    if kind == "a quarter different":
        return np.where(rng.random(shape) < 0.25, of_link, of_channel)
    if kind == "additive":
        offset = rng.normal(0.0, 2.0, (1, n_clients, 1))
        return 1.0 / (1.0 + np.exp(-np.log(of_channel / (1.0 - of_channel)) - offset))
    return np.broadcast_to(of_channel, shape).copy()


def _instance(kind: str, size: tuple[int, int, int], seed: int) -> Callable[[Any], float]:
    """Draw an air; the function returned plays a scheduler on it and tells the mean age."""
    n_clients, n_channels, rounds = size
    rng = np.random.default_rng([seed, KINDS.index(kind), n_clients])
    means = _draw_means(kind, n_clients, n_channels, rng)
    breaks = np.sort(rng.choice(rounds - 1, BREAKPOINTS, replace=False)) + 1
    ends = np.append(breaks, rounds)
    draws = rng.random((rounds, n_clients, n_channels))

    def play(scheduler: Any) -> float:
        own = np.random.default_rng(seed)
        state = scheduler.start_links(n_clients, n_channels, own, None)
        total = np.zeros(1)
        _play(state, Age().start(n_clients), means, ends, draws, own, total)
        return float(total[0] / rounds / n_clients)

    return play


def _ratios(kind: str, size: tuple[int, int, int], instances: int, seed: int) -> list[float]:
    plays = (_instance(kind, size, seed + number) for number in range(instances))
    return [play(Bayes()) / play(Oracle()) for play in plays]


def table(repeats: int, instances: int = 16, seed: int = 0) -> dict[str, Any]:
    """Measure ages over the oracle's, and microseconds per round."""
    rows = {}
    for size in SIZES:
        n_clients, n_channels, rounds = size
        play = _instance("different", size, seed)
        seconds = interleave({"links": lambda turn, play=play: play(Bayes())}, max(3, repeats // 8))
        row: dict[str, Any] = {"us_per_round": seconds["links"] / rounds * 1e6, "kinds": {}}
        for kind in KINDS:
            ratios = _ratios(kind, size, instances, seed)
            row["kinds"][kind] = {
                "ratio": statistics.mean(ratios),
                "error": statistics.stdev(ratios) / math.sqrt(instances),
            }
        rows[f"N={n_channels} M={n_clients}"] = row
    return {"instances": instances, "rows": rows}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=16, help="airs of each kind")
    parser.add_argument("--seed", type=int, default=0, help="of the first air")
    options = parser.parse_args()
    for name, row in table(24, options.instances, options.seed)["rows"].items():
        print(f"{name}: {row['us_per_round']:.0f} us per round")
        for kind, values in row["kinds"].items():
            print(f"  {kind}: {values['ratio']:.4f} ± {values['error']:.4f}")
