"""The assignment problem: which client sends on which channel if links differ."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from freshband._jit import cold, kernel

_SCORE, _URGENCY = 1e9, 1e200  # the largest that count, so that differences stay finite


@kernel
def _within(limit: float, number: float) -> float:
    """Return the number within -limit and limit; one that is no number counts as the worst."""
    if number > limit:
        return limit
    return number if number >= -limit else -limit


@cold
def assign(
    urgency: Any, scores: Any, clients: Any, channels: Any, most: int, assignment: Any
) -> None:
    """Pair clients with channels such that the sum of urgency times score is largest.

    There are as many pairs as clients, channels and ``most`` allow, whatever the signs of scores.
    The smaller side is matched to the larger in O(K^2 L) steps, with K members in the smaller and L
    in the larger.

    Parameters
    ----------
    urgency : float64 array, shape (M,)
    scores : float64 array, shape (M, N)
    clients : int64 array, shape (m,)
        Those who may send; their order decides between equal assignments.
    channels : int64 array, shape (c,)
        Those that may be used.
    most : int
        The largest number of pairs.
    assignment : int64 array, shape (M,)
        Filled with the channels of clients that get one; the others keep what they have.

    Examples
    --------
    >>> scores = np.array([[0.9, 0.8], [0.9, 0.1]])
    >>> assignment = np.full(2, -1)
    >>> assign(np.array([2.0, 1.0]), scores, np.arange(2), np.arange(2), 2, assignment)
    >>> assignment.tolist()  # 2 x 0.8 + 0.9 is more than 2 x 0.9 + 0.1
    [1, 0]
    >>> assignment[:] = -1
    >>> assign(np.array([2.0, 1.0]), scores, np.arange(2), np.arange(2), 1, assignment)
    >>> assignment.tolist()
    [0, -1]
    """
    by_client = len(clients) <= len(channels)
    rows, columns = (clients, channels) if by_client else (channels, clients)
    spare = max(0, len(rows) - most)  # rows without a pair hold one of as many empty columns
    if spare > 0:  # of equal rows, those that enter last are paired
        rows = rows[::-1]
    n_columns = len(columns)
    costs = np.empty((len(rows), n_columns + spare))
    for row in range(len(rows)):
        for column in range(n_columns):
            client, channel = rows[row], columns[column]
            if not by_client:
                client, channel = channel, client
            score = _within(_SCORE, scores[client, channel])
            costs[row, column] = -_within(_URGENCY, urgency[client]) * score
    if spare > 0:  # below all others, so that these columns are all used
        costs[:, n_columns:] = -1.0 - 2.0 * np.abs(costs[:, :n_columns]).max()
    holder = _match_rows(costs)
    for column in range(n_columns):
        if holder[column] >= 0:
            client, channel = rows[holder[column]], columns[column]
            if not by_client:
                client, channel = channel, client
            assignment[client] = channel


@cold
def _match_rows(costs: Any) -> Any:
    """Return the row that each column holds, or -1, if all rows are matched at the least cost.

    The Hungarian method: rows enter one by one, each along the shortest augmenting path with
    respect to prices of columns and of rows (Jonker and Volgenant).
    """
    n_rows, end = costs.shape  # the column ``end`` is the place of the row that enters
    holder, via = np.full(end + 1, -1), np.zeros(end + 1, np.int64)
    price, wealth = np.zeros(end + 1), np.zeros(n_rows)
    slack = np.zeros(end + 1)  # minus infinity once a column is reached
    path = np.zeros(n_rows + 1, np.int64)  # the columns reached, in order
    for entering in range(n_rows):
        slack[:] = math.inf
        holder[end] = entering
        place, step, length = end, 0.0, 0
        while holder[place] >= 0:
            slack[place] = -math.inf
            path[length] = place
            length += 1
            row = holder[place]
            rich = wealth[row]
            for k in range(end):  # without branches: which columns are near is hard to predict
                left, distance = slack[k] - step, costs[row, k] - rich - price[k]
                via[k] = place if distance < left else via[k]
                slack[k] = distance if distance < left else left
            step = math.inf
            for k in range(end):
                left = slack[k] if slack[k] > -math.inf else math.inf
                step = left if left < step else step
            nearest = 0
            while slack[nearest] != step:
                nearest += 1
            for k in path[:length]:
                wealth[holder[k]] += step
                price[k] -= step
            place = nearest
        while place != end:
            holder[place] = holder[via[place]]
            place = via[place]
    return holder[:end]
