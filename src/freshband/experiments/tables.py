"""Tables of states that an adversary fixes in advance, made against a policy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from freshband.channels import Reactive, open_air
from freshband.channels.adversary import react, start_reacting
from freshband.coordinator import Coordinator

__all__ = ["table_against"]


def table_against(
    policy: str, n_clients: int, n_channels: int, rounds: int, seed: int
) -> NDArray[np.float64]:
    """Return the states, shape (rounds, N), of a game that a jammer plays against a policy.

    The channels' means are U[0, 1]. In every round the jammer blocks the two channels that the
    policy has used most in the last ten. Afterwards the table stands: who is played against it can
    no longer change it. The policy's own coins are others than in later runs.

    Examples
    --------
    >>> table_against("random", 2, 4, 30, seed=0).shape
    (30, 4)
    """
    jammer = Reactive(
        n_channels=n_channels, mean_low=0, mean_high=1, window=10, width=2, budget=1.0
    )
    free, state = open_air(jammer, rounds=rounds, seed=seed).block(rounds), start_reacting(jammer)
    states, means = free.states.copy(), free.means.copy()
    learner = Coordinator(policy, n_clients, n_channels, horizon=rounds, seed=1000 + seed)
    plan = np.full(n_clients, -1)
    for t in range(1, rounds + 1):
        react(state, t, plan, states[t - 1], means[t - 1])
        plan = learner.plan()
        learner.observe(states[t - 1][plan] == 1)
    return np.asarray(states, dtype=np.float64)
