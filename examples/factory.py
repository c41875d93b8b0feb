"""A factory: six robots at fixed places, ten channels, and a jammer that moves on."""

import numpy as np

from freshband import Coordinator


def play(links: str, rounds: int) -> float:
    """Return the mean age of the robots."""
    rng = np.random.default_rng(0)
    rates = rng.uniform(0.1, 0.9, (6, 10))  # of each robot on each channel: nobody knows them
    server = Coordinator("bayes", n_clients=6, n_channels=10, seed=0, links=links)
    total = 0.0
    for t in range(rounds):
        plan = server.plan()
        jammed = (plan - t // 500) % 10 < 2  # two of ten channels, the next ones after 500 rounds
        delivered = (rng.random(6) < rates[np.arange(6), plan]) & ~jammed
        server.observe(delivered)
        total += server.ages.mean()
    return total / rounds


def main(rounds: int = 4000) -> None:
    """Compare what the server may assume about links."""
    for links in ("shared", "differ"):
        print(f"links {links}: mean age {play(links, rounds):.2f}")


if __name__ == "__main__":
    main()
