"""Links that differ per client: ``python -m benchmarks.links [--instances 16] [--seed 0]``.

Paired runs of `bayes` and of the oracle over the same draws, through the package's verbs: the mean
age over the oracle's for links that are shared, differ fully, differ for a quarter of them, and
differ by an offset of the client's logit, and, as a losing case, for links that differ and do not
change together. A last column takes all links as shared.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.measure import interleave
from freshband._jit import entry_point
from freshband._lending import lend
from freshband.matching.age import Age
from freshband.matching.base import match, match_links
from freshband.schedulers.base import reveal, score, select, update
from freshband.schedulers.bayes import Bayes
from freshband.schedulers.oracle import Oracle

__all__ = ["SIZES", "table"]

SIZES = ((6, 10, 4000), (20, 30, 2000))  # clients, channels, rounds
BREAKPOINTS = 5
KINDS = ("shared", "different", "a quarter different", "additive", "different, one by one")
_GRADUAL = 10  # times as many breakpoints where links change one by one, a tenth of them at each


@entry_point
def _play(
    scheduler: Any,
    matching: Any,
    means: Any,
    ends: Any,
    draws: Any,
    chosen: Any,
    scores: Any,
    rng: Any,
    total: Any,
) -> None:
    """Play all rounds; ``total`` receives the sum of all ages."""
    scheduler, matching, means, draws = lend(scheduler), lend(matching), lend(means), lend(draws)
    rounds, n_clients, n_channels = draws.shape
    ages, priorities = np.ones(n_clients, np.int64), np.zeros(n_clients)
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
        if len(chosen) == n_clients:  # links are taken as shared
            match(matching, t, chosen, scores, ages, priorities, rng, assignment)
        else:
            match_links(matching, t, chosen, scores, ages, priorities, n_clients, rng, assignment)
        for j in range(n_clients):
            channel = assignment[j]
            outcome[j] = draws[t - 1, j, channel] < means[segment, j, channel]
            ages[j] = 1 if outcome[j] == 1 else ages[j] + 1
            total[0] += ages[j]
        update(scheduler, t, assignment, outcome, overridden)


def _breakpoints(kind: str) -> int:
    return BREAKPOINTS * (_GRADUAL if kind.endswith("one by one") else 1)


def _draw_means(kind: str, n_clients: int, n_channels: int, rng: np.random.Generator) -> Any:
    """Draw the rates of all segments, shape (segments, M, N)."""
    segments = _breakpoints(kind) + 1
    shape = (segments, n_clients, n_channels)
    of_channel = rng.uniform(0.1, 0.9, (segments, 1, n_channels))
    of_link = rng.uniform(0.1, 0.9, shape)
    if kind == "different, one by one":
        for segment in range(1, segments):
            stays = rng.random(shape[1:]) >= 1.0 / _GRADUAL
            of_link[segment] = np.where(stays, of_link[segment - 1], of_link[segment])
    if kind.startswith("different"):
        return of_link
    if kind == "a quarter different":
        return np.where(rng.random(shape) < 0.25, of_link, of_channel)
    if kind == "additive":
        offset = rng.normal(0.0, 2.0, (1, n_clients, 1))
        return 1.0 / (1.0 + np.exp(-np.log(of_channel / (1.0 - of_channel)) - offset))
    return np.broadcast_to(of_channel, shape).copy()


def _draw(kind: str, size: tuple[int, int, int], seed: int) -> tuple[Any, Any, Any]:
    """Draw an air: rates by segment, the last round of each segment, and uniform numbers."""
    n_clients, n_channels, rounds = size
    rng = np.random.default_rng([seed, KINDS.index(kind), n_clients])
    means = _draw_means(kind, n_clients, n_channels, rng)
    breaks = np.sort(rng.choice(rounds - 1, _breakpoints(kind), replace=False)) + 1
    return means, np.append(breaks, rounds), rng.random((rounds, n_clients, n_channels))


def _instance(kind: str, size: tuple[int, int, int], seed: int) -> Callable[..., float]:
    """Draw an air; the function returned plays a scheduler on it and tells the mean age."""
    n_clients, n_channels, rounds = size
    means, ends, draws = _draw(kind, size, seed)

    def play(scheduler: Any, shared: bool = False) -> float:
        own = np.random.default_rng(seed)
        start = scheduler.start if shared else scheduler.start_links
        state = start(n_clients, n_channels, own, None)
        chosen = np.zeros(n_clients if shared else n_channels, np.int64)
        scores, total = np.zeros((1 if shared else n_clients, n_channels)), np.zeros(1)
        _play(state, Age().start(n_clients), means, ends, draws, chosen, scores, own, total)
        return float(total[0] / rounds / n_clients)

    return play


def _compare(kind: str, size: tuple[int, int, int], instances: int, seed: int) -> dict[str, float]:
    """Return mean ages over the oracle's, with the standard errors over the instances."""
    plays = [_instance(kind, size, seed + number) for number in range(instances)]
    best = np.array([play(Oracle()) for play in plays])
    ratios = np.array([play(Bayes()) for play in plays]) / best
    shared = np.array([play(Bayes(), shared=True) for play in plays]) / best
    root = math.sqrt(instances)
    return {
        "ratio": float(ratios.mean()),
        "error": float(ratios.std(ddof=1) / root),
        "shared_ratio": float(shared.mean()),
        "shared_error": float(shared.std(ddof=1) / root),
    }


def table(repeats: int, instances: int = 16, seed: int = 0) -> dict[str, Any]:
    """Measure ages over the oracle's, and microseconds per round."""
    rows = {}
    for size in SIZES:
        n_clients, n_channels, rounds = size
        plays = {kind: _instance(kind, size, seed) for kind in KINDS}
        actions = {kind: lambda turn, play=play: play(Bayes()) for kind, play in plays.items()}
        seconds = interleave(actions, max(3, repeats // 8))
        rows[f"N={n_channels} M={n_clients}"] = {
            "us_per_round": max(seconds.values()) / rounds * 1e6,
            "kinds": {kind: _compare(kind, size, instances, seed) for kind in KINDS},
        }
    return {"instances": instances, "rows": rows}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=16, help="airs of each kind")
    parser.add_argument("--seed", type=int, default=0, help="of the first air")
    options = parser.parse_args()
    for name, row in table(24, options.instances, options.seed)["rows"].items():
        print(f"{name}: at most {row['us_per_round']:.0f} us per round")
        for kind, each in row["kinds"].items():
            links, shared = each["ratio"], each["shared_ratio"]
            errors = each["error"], each["shared_error"]
            print(f"  {kind}: {links:.3f} ± {errors[0]:.3f}, shared {shared:.3f} ± {errors[1]:.3f}")
