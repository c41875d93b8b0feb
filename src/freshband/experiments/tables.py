"""Tables of states that an adversary fixes in advance, made against a policy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from freshband.coordinator import Coordinator

__all__ = ["table_against"]


def table_against(
    policy: str, n_clients: int, n_channels: int, rounds: int, seed: int
) -> NDArray[np.float64]:
    """Return the states, shape (rounds, N), of a game that an adversary plays against a policy.

    Channels have means U[0, 1], and in every round the channel that the policy gives to its oldest
    client is Bad. Afterwards the table stands: who is played on it later cannot change it. The
    adversary knows the policy, but not its coins, which are others than in those later runs.

    Examples
    --------
    >>> table_against("random", 2, 4, 30, seed=0).shape
    (30, 4)
    """
    rng = np.random.default_rng(seed)
    states = (rng.random((rounds, n_channels)) < rng.random(n_channels)).astype(np.float64)
    played = Coordinator(policy, n_clients, n_channels, horizon=rounds, seed=1000 + seed)
    for row in states:
        plan = played.plan()
        row[plan[np.argmax(played.ages)]] = 0
        played.observe(row[plan] == 1)
    return states
