"""An agent for the Gymnasium environment, trained by the cross-entropy method, in the arena.

python examples/gym_agent.py    trains it and prints the weights below
freshband --import examples/gym_agent.py arena --agent learnt --policies random,cucb \
    --family short --family fig3-extreme
"""

import numpy as np

from freshband.gym import SchedulingEnv, play_agent, register_agent

# A channel is worth a weighted sum of its last eight outcomes (1, -1, 0 for not used), and of how
# long it was left alone: one weight for each of eight rounds, and one for the waiting.
WEIGHTS = np.array([0.82, 0.62, 0.92, 1.65, 0.96, 0.81, 1.78, 1.09, 0.01])


@register_agent("learnt")
class Learnt:
    """Scores channels by a weighted sum that was learnt."""

    def __init__(self, weights: np.ndarray = WEIGHTS) -> None:
        self.weights = weights

    def reset(self, n_clients: int, n_channels: int, history: int) -> None:
        self.n_clients, self.shape = n_clients, (history, n_channels)
        self.waited = np.zeros(n_channels)

    def act(self, observation: np.ndarray) -> np.ndarray:
        seen = observation[self.n_clients :].reshape(self.shape)
        self.waited = np.where(seen[0] != 0, 0.0, self.waited + 1)
        scores = self.weights[:-1] @ seen + self.weights[-1] * np.minimum(self.waited, 50) / 50
        return (1 / (1 + np.exp(-scores))).astype(np.float32)


def mean_age(weights: np.ndarray, environment: SchedulingEnv, seed: int) -> float:
    """Return the mean age over two instances."""
    sums = [play_agent(Learnt(weights), environment, seed, run).mean() for run in range(2)]
    return float(np.mean(sums)) / environment.n_clients


def train(rounds: int = 20, candidates: int = 24, best: int = 6) -> np.ndarray:
    """Draw weights, keep the best, draw around them, and so on."""
    rng = np.random.default_rng(0)
    environment = SchedulingEnv("switching", rounds=250, hazard=0.01)
    middle, spread = np.zeros(9), np.ones(9)
    for step in range(rounds):
        drawn = middle + spread * rng.standard_normal((candidates, 9))
        ages = [mean_age(weights, environment, seed=1000 + step) for weights in drawn]
        kept = drawn[np.argsort(ages)[:best]]
        middle, spread = kept.mean(axis=0), kept.std(axis=0) + 0.05
        print(f"step {step + 1}: mean age {np.sort(ages)[:best].mean():.3f}")
    return middle


if __name__ == "__main__":
    print(train().round(2).tolist())
