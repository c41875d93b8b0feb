"""Asynchronous training on one-dimensional quadratics, in exact expectation.

Client i holds `F_i(w) = h_i (w - c_i)² / 2`. Its stochastic gradient is the true one plus or minus
σ with equal probability, and all sequences of signs are enumerated. Slow and obvious: a client
keeps the sum of its gradients until it arrives, and the server applies the mean of what arrived.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass
class Quadratics:
    """A federation on the real line."""

    curvatures: Sequence[float]
    centres: Sequence[float]

    @property
    def curvature(self) -> float:
        return float(np.mean(self.curvatures))

    @property
    def optimum(self) -> float:
        return float(np.dot(self.curvatures, self.centres) / np.sum(self.curvatures))

    def gradient(self, client: int, w: float) -> float:
        return self.curvatures[client] * (w - self.centres[client])

    def gap(self, w: float) -> float:
        return self.curvature * (w - self.optimum) ** 2 / 2


@dataclass
class Run:
    """What one sequence of noise leads to."""

    gaps: list[float]
    squares: dict[tuple[int, int, int], float] = field(default_factory=dict)  # |g|² by t, i, step
    applied: list[tuple[float, float]] = field(default_factory=list)  # Γ1 and Γ2 of each round


def play(
    problem: Quadratics, delivered: Any, start: float, step: float, local_steps: int, noise: Any
) -> Run:
    """One run; ``noise`` is an iterator of the gradients' errors."""
    clients = len(problem.centres)
    w = start
    run = Run([problem.gap(w)])
    noisy, true = [0.0] * clients, [0.0] * clients
    fresh = [True] * clients
    for t, arrived in enumerate(delivered):
        for i in range(clients):
            run.squares[t, i, -1] = problem.gradient(i, w) ** 2  # at the server's model
            if fresh[i]:
                noisy[i] = true[i] = 0.0
                local = w
                for step_number in range(local_steps):
                    right = problem.gradient(i, local)
                    g = right + next(noise)
                    run.squares[t, i, step_number] = g * g
                    noisy[i] += g
                    true[i] += right
                    local -= step * g
        served = [i for i in range(clients) if arrived[i]]
        scale = len(served) * local_steps
        if served:
            first, second = (sum(x[i] for i in served) / scale for x in (noisy, true))
            run.applied.append((first, second))
            w -= step * local_steps * first
        run.gaps.append(problem.gap(w))
        fresh = [bool(x) for x in arrived]
    return run


def expectation(
    problem: Quadratics, delivered: Any, start: float, step: float, local_steps: int, sigma: float
) -> tuple[NDArray[np.float64], float, NDArray[np.float64]]:
    """Expected gaps, the G of this run, and the expected squares of Γ1 and Γ2 by round."""
    arrivals = np.asarray(delivered)
    trained = np.concatenate([np.ones((1, arrivals.shape[1]), bool), arrivals[:-1] == 1])
    draws = int(trained.sum()) * local_steps
    signs = itertools.product([-sigma, sigma], repeat=draws) if sigma else [(0.0,) * draws]
    runs = [play(problem, arrivals, start, step, local_steps, iter(x)) for x in signs]
    gaps = np.mean([run.gaps for run in runs], axis=0)
    squares = {key: np.mean([run.squares[key] for run in runs]) for key in runs[0].squares}
    applied = np.mean([np.square(run.applied) for run in runs], axis=0)
    return gaps, float(np.sqrt(max(squares.values()))), applied
