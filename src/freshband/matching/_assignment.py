"""The assignment problem: which client sends on which channel if links differ."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from freshband._jit import cold, kernel

_MOST = 1e9  # replaces infinite scores, so that differences stay finite


@kernel
def _cost(urgency: float, score: float) -> float:
    if score > _MOST:
        return -urgency * _MOST
    return -urgency * score if score >= -_MOST else urgency * _MOST  # NaN counts as the worst


@cold
def assign(urgency: Any, scores: Any, clients: Any, channels: Any, assignment: Any) -> None:
    """Give each client one of the channels such that the sum of urgency times score is largest.

    The Hungarian method: clients enter one by one, each along the shortest augmenting path with
    respect to prices of channels and clients (Jonker and Volgenant), in O(M^2 K) steps.

    Parameters
    ----------
    urgency : float64 array, shape (M,)
    scores : float64 array, shape (M, N)
    clients : int64 array, shape (M,)
        All clients, in the order in which they enter; the order decides between equal assignments.
    channels : int64 array, shape (K,), K >= M
    assignment : int64 array, shape (M,)
        Filled with a channel per client.

    Examples
    --------
    >>> scores = np.array([[0.9, 0.8], [0.9, 0.1]])
    >>> assignment = np.full(2, -1)
    >>> assign(np.array([2.0, 1.0]), scores, np.arange(2), np.arange(2), assignment)
    >>> assignment.tolist()  # 2 x 0.8 + 0.9 is more than 2 x 0.9 + 0.1
    [1, 0]
    """
    end = len(channels)  # the place of the client that enters
    holder = np.full(end + 1, -1)  # position in ``clients`` of the client that holds a channel
    price, wealth = np.zeros(end + 1), np.zeros(len(clients))
    slack, via = np.zeros(end), np.zeros(end, np.int64)
    for entering in range(len(clients)):
        reached = np.zeros(end + 1, np.bool_)
        slack[:] = math.inf
        holder[end] = entering
        place = end
        while holder[place] >= 0:
            reached[place] = True
            held_by = holder[place]
            client = clients[held_by]
            step, nearest = math.inf, end
            for k in range(end):
                if not reached[k]:
                    cost = _cost(urgency[client], scores[client, channels[k]])
                    distance = cost - wealth[held_by] - price[k]
                    if distance < slack[k]:
                        slack[k] = distance
                        via[k] = place
                    if slack[k] < step:
                        step, nearest = slack[k], k
            for k in range(end + 1):
                if reached[k]:
                    wealth[holder[k]] += step
                    price[k] -= step
                elif k < end:
                    slack[k] -= step
            place = nearest
        while place != end:
            holder[place] = holder[via[place]]
            place = via[place]
    for k in range(end):
        if holder[k] >= 0:
            assignment[clients[holder[k]]] = channels[k]
