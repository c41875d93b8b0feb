"""AdSwitch with every interval tested, as printed, beside the package's; and the presets `light`.

python -m benchmarks.printed

Prints the regret in deliveries on `besson-1` and `besson-2` (one client, T = 5000) that the pages
of `adswitch` and `master` quote.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from freshband import simulate
from freshband.channels import open_air

ROUNDS = 5000
POLICIES = (
    "random,cucb,adswitch,adswitch:light,master,master:light,"
    "scale-0_01=master{test_scale=0.01},scale-0_003=master{test_scale=0.003},"
    "scale-0_001=master{test_scale=0.001}"
)


@numba.njit  # type: ignore[untyped-decorator]  # numba ships no annotations
def play_printed(means: Any, rng: Any, eviction: float) -> float:
    """Return the regret of AdSwitch for one play per round, over all intervals of an episode."""
    rounds, n = means.shape
    log_rounds = math.log(rounds)
    regret, t, episode = 0.0, 0, 0
    while t < rounds:
        episode += 1
        tries, wins = np.zeros((rounds + 1, n)), np.zeros((rounds + 1, n))  # after each round
        good, last, owed = np.ones(n, np.bool_), np.zeros(n), np.zeros(n)
        gap, mean, low, high = np.zeros(n), np.zeros(n), np.zeros(n), np.ones(n)
        elapsed, changed = 0, False
        while t < rounds and not changed:
            rate = math.sqrt(episode / (n * rounds * log_rounds))
            for k in range(n):
                size = 0.5
                while not good[k] and 16 * size >= gap[k] and size > 1e-3:
                    if rng.random() < size * rate:
                        owed[k] = max(owed[k], math.ceil(2 * log_rounds / size**2))
                    size /= 2
            chosen = -1
            for k in range(n):
                if (good[k] or owed[k] > 0) and (chosen < 0 or last[k] < last[chosen]):
                    chosen = k
            last[chosen], owed[chosen] = t + 1, max(owed[chosen] - 1, 0)
            regret += means[t].max() - means[t, chosen]
            won = rng.random() < means[t, chosen]
            t, elapsed = t + 1, elapsed + 1
            tries[elapsed], wins[elapsed] = tries[elapsed - 1], wins[elapsed - 1]
            tries[elapsed, chosen] += 1
            wins[elapsed, chosen] += won
            for s in range(elapsed):
                heard = tries[elapsed, chosen] - tries[s, chosen]
                if heard == 0:
                    continue
                found = (wins[elapsed, chosen] - wins[s, chosen]) / heard
                width = math.sqrt(2 * log_rounds / heard)
                if not good[chosen]:
                    changed |= abs(found - mean[chosen]) > gap[chosen] / 4 + width
                low[chosen] = max(low[chosen], found - width)
                high[chosen] = min(high[chosen], found + width)
            changed |= good[chosen] and low[chosen] > high[chosen]
            for s in range(elapsed):
                best = -1.0
                for k in range(n):
                    heard = tries[elapsed, k] - tries[s, k]
                    if good[k] and heard > 1:
                        best = max(best, (wins[elapsed, k] - wins[s, k]) / heard)
                for k in range(n):
                    heard = tries[elapsed, k] - tries[s, k]
                    if good[k] and heard > 1:
                        behind = best - (wins[elapsed, k] - wins[s, k]) / heard
                        if behind > math.sqrt(eviction * log_rounds / (heard - 1)):
                            good[k], gap[k], mean[k] = False, behind, best - behind
    return regret


def main() -> None:
    """Print a line for each problem."""
    for problem in ("besson-1", "besson-2"):
        policies = f"{POLICIES},oracle:mean+age"
        result = simulate(problem, policies, clients=1, rounds=ROUNDS, runs=50, progress=False)
        delivered = result.delivered.mean("run")
        lost = delivered.sel(policy="oracle:mean+age") - delivered
        means = open_air(problem, ROUNDS, seed=0).block(ROUNDS).means
        printed = [play_printed(means, np.random.default_rng(seed), 1.0) for seed in range(30)]
        error = np.std(printed, ddof=1) / math.sqrt(len(printed))
        rows = {str(name): round(float(lost.sel(policy=name))) for name in lost.policy.values[:-1]}
        print(f"{problem}: adswitch as printed {np.mean(printed):.0f} ± {error:.0f}; {rows}")


if __name__ == "__main__":
    main()
