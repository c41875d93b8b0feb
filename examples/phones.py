"""Phones that come and go: two say so, and one is switched off without a word."""

import numpy as np

from freshband import Coordinator

RATES = np.array([0.9, 0.7, 0.4])  # nobody knows them


def main() -> None:
    """Let Eve join and Bo leave; Cy falls silent in round 300 and is back in round 500."""
    rng = np.random.default_rng(0)
    server = Coordinator("bayes", 4, n_channels=3, client_ids=["Ann", "Bo", "Cy", "Di"])
    for t in range(1, 601):
        if t == 100:
            server.join("Eve")
        if t == 200:
            server.leave("Bo")
        plan, names = server.plan(), server.client_ids
        heard = (rng.random(len(plan)) < RATES[plan]).tolist()
        if 300 <= t < 500:
            heard[names.index("Cy")] = None  # no answer
        server.observe(heard)
        if t in (99, 199, 299, 300, 301, 302, 499, 599):
            alive = zip(names, server.alive.round(2).tolist(), strict=True)
            print(f"{t}:", {name: p for name, p in alive if name})


if __name__ == "__main__":
    main()
