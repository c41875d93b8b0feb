"""What a policy can reach that is told nearly everything: ``python -m benchmarks.links_limit``.

20 clients, 30 channels, links that differ or of which a quarter differ. The policy is told every
breakpoint, how rates are distributed and, with a quarter different, the rate of every channel. It
plays Gittins' index of each link, which is optimal for one client and discounted successes. The
discount is the same in all rounds, or falls towards the end of a segment: one that is `planned`
treats the n rounds left as endless ones with a discount of 1 - 1/n.

The rows `alone` have one client on the 30 channels, with whom nobody competes.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import numba
import numpy as np

from benchmarks.links import SIZES, _draw, _instance
from freshband.matching._assignment import assign
from freshband.schedulers.oracle import Oracle

_MOST = 400  # outcomes after which a link counts as known
_DISCOUNTS = (0.98, 0.99, 0.995, 0.9975, 0.999)
_NEAR_THE_END = (0.5, 0.8, 0.9, 0.95, 0.97)  # more discounts, for those that plan
_ALONE = 20  # times as many airs for a client alone
_BASES = 0.1 + 0.8 * (np.arange(32) + 0.5) / 32  # channel rates are rounded to these


@numba.njit  # type: ignore[untyped-decorator]  # numba ships no annotations
def _posterior_means(base: float, slab: float, means: Any) -> None:
    """Write E[rate] by wins and losses: uniform in [0.1, 0.9] with probability slab, else base."""
    grid = 0.1 + 0.8 * (np.arange(80) + 0.5) / 80
    for wins in range(_MOST + 1):
        for losses in range(_MOST + 1 - wins):
            logs = wins * np.log(grid) + losses * np.log(1.0 - grid)
            top = logs.max()
            likely = np.exp(logs - top)
            differs = slab * likely.mean()
            same = (1.0 - slab) * math.exp(
                wins * math.log(base) + losses * math.log(1.0 - base) - top
            )
            own = (likely * grid).sum() / likely.sum()
            means[wins, losses] = (differs * own + same * base) / (differs + same)


@numba.njit  # type: ignore[untyped-decorator]  # numba ships no annotations
def _gittins(means: Any, discount: float, index: Any) -> None:
    """Write Gittins' index by wins and losses: the rate to retire on that breaks even."""
    index[:] = -1.0
    value = np.zeros(_MOST + 1)
    for retire in 0.1 + 0.8 * (np.arange(80) + 0.5) / 80:
        for wins in range(_MOST + 1):
            value[wins] = max(means[wins, _MOST - wins], retire) / (1.0 - discount)
        for n in range(_MOST - 1, -1, -1):
            for wins in range(n + 1):
                rate = means[wins, n - wins]
                go = rate * (1.0 + discount * value[wins + 1])
                go += (1.0 - rate) * discount * value[wins]
                stop = retire / (1.0 - discount)
                if go <= stop and index[wins, n - wins] < 0.0:
                    index[wins, n - wins] = retire
                value[wins] = max(go, stop)


@numba.njit  # type: ignore[untyped-decorator]  # numba ships no annotations
def _play(
    rates: Any, ends: Any, draws: Any, base: Any, means: Any, index: Any, discounts: Any
) -> float:
    """Return the mean age; of several indices the one whose discount fits the rounds left."""
    rounds, n_clients, n_channels = draws.shape
    wins = np.zeros((n_clients, n_channels), np.int64)
    losses = np.zeros((n_clients, n_channels), np.int64)
    scores, ages = np.zeros((n_clients, n_channels)), np.ones(n_clients)
    clients, channels = np.arange(n_clients), np.arange(n_channels)
    assignment = np.full(n_clients, -1)
    total, segment = 0.0, 0
    for t in range(1, rounds + 1):
        while t > ends[segment]:
            segment += 1
            wins[:] = 0
            losses[:] = 0
        left = ends[segment] - t + 2.0
        which = np.argmin(np.abs(np.log((1.0 - discounts) * left)))
        for i in range(n_clients):
            for k in range(n_channels):
                rate = means[base[segment, k], wins[i, k], losses[i, k]]
                gain = max(index[which, base[segment, k], wins[i, k], losses[i, k]] - rate, 0.0)
                scores[i, k] = rate + gain / ages[i]
        assign(ages * (ages + 1.0), scores, clients, channels, n_clients, assignment)
        for i in range(n_clients):
            k = assignment[i]
            delivered = draws[t - 1, i, k] < rates[segment, i, k]
            if wins[i, k] + losses[i, k] < _MOST - 1:
                wins[i, k] += delivered
                losses[i, k] += not delivered
            ages[i] = 1.0 if delivered else ages[i] + 1.0
            total += ages[i]
    return float(total / rounds / n_clients)


def _report(kind: str, slab: float, n_clients: int, seeds: range) -> None:
    """Print mean ages over the oracle's for a kind of links, by discount."""
    size = (n_clients, *SIZES[1][1:])
    bases = _BASES if slab < 1.0 else _BASES[:1]
    means = np.zeros((len(bases), _MOST + 1, _MOST + 1))
    for place, base in enumerate(bases):
        _posterior_means(base, slab, means[place])
    discounts = np.array(_NEAR_THE_END + _DISCOUNTS)
    index = np.zeros((len(discounts), *means.shape))
    for each, discount in enumerate(discounts):
        for place in range(len(bases)):
            _gittins(means[place], discount, index[each, place])
    airs = [_draw(kind, size, seed) for seed in seeds]
    best = np.array([_instance(kind, size, seed)(Oracle()) for seed in seeds])
    choices = {f"discount {each}": discounts == each for each in _DISCOUNTS}
    for name, used in (choices | {"planned": discounts > 0.0}).items():
        ages = []
        for rates, ends, draws in airs:
            middle = np.median(rates, axis=1)  # the channel's rate, if most links have it
            base = np.clip(((middle - 0.1) / 0.8 * len(_BASES)).astype(int), 0, len(bases) - 1)
            ages.append(_play(rates, ends, draws, base, means, index[used], discounts[used]))
        ratios = np.array(ages) / best
        error = ratios.std(ddof=1) / math.sqrt(len(ratios))
        crowd = "alone" if n_clients == 1 else f"{n_clients} clients"
        print(f"{kind}, {crowd}, {name}: {ratios.mean():.3f} ± {error:.3f}", flush=True)


def main() -> None:
    """Print mean ages over the oracle's, by discount."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=16, help="airs of each kind")
    parser.add_argument("--seed", type=int, default=0, help="of the first air")
    options = parser.parse_args()
    few, first = options.instances, options.seed
    _report("different", 1.0, SIZES[1][0], range(first, first + few))
    _report("a quarter different", 0.25, SIZES[1][0], range(first, first + few))
    _report("different", 1.0, 1, range(first, first + few * _ALONE))


if __name__ == "__main__":
    main()
