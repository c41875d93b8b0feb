"""A few clients on links of known success rates, as a Markov decision process.

The state is the tuple of ages, cut off at ``cap``; an action gives clients channels of their own,
or none (-1); a round costs the weighted sum of the ages after it. Relative value iteration brackets
the best, or a given rule's, long-run cost per round, so the figures come with their own error
bound.

A *rule* is an array of shape (M, cap, ..., cap): the channel of each client in each state. A cycle
of rules is used in turn.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

FIRST = 1000.0  # times as urgent is a client whose age is cut off


class Solution(NamedTuple):
    """A long-run cost, and what each action costs in the long run."""

    low: float  # the cost per round lies between these two
    high: float
    ahead: NDArray[np.float64]  # (actions, cap, ..., cap) relative cost of an action, then the best


def actions(n_clients: int, n_channels: int, most: int | None = None) -> list[tuple[int, ...]]:
    """All ways to use as many channels as possible, at most ``most``."""
    n_pairs = min(n_clients, n_channels, n_clients if most is None else most)
    found = []
    for who in itertools.combinations(range(n_clients), n_pairs):
        for where in itertools.permutations(range(n_channels), n_pairs):
            plan = dict(zip(who, where, strict=True))
            found.append(tuple(plan.get(client, -1) for client in range(n_clients)))
    return found


class Round:
    """A round under one action, or under one rule: what it costs and where it leads."""

    def __init__(self, rates: ArrayLike, weights: ArrayLike, plan: Any, cap: int) -> None:
        self.cost: Any = 0.0
        self.chances: list[Any] = [1.0]  # of each tuple of outcomes, in the order of `after`
        n_clients = len(plan)
        for client, (row, weight) in enumerate(
            zip(np.asarray(rates, float), np.asarray(weights, float), strict=True)
        ):
            success = np.where(np.asarray(plan[client]) >= 0, row[plan[client]], 0.0)
            ages = _along(np.arange(1, cap + 1), client, n_clients)
            self.cost = self.cost + weight * (1 + (1 - success) * ages)
            self.chances = [c * p for c in self.chances for p in (success, 1 - success)]

    def look_ahead(self, outcomes: list[NDArray[np.float64]]) -> NDArray[np.float64]:
        """Expected cost from each state, plus the worth of where it leads."""
        onward = sum(chance * worth for chance, worth in zip(self.chances, outcomes, strict=True))
        return np.asarray(self.cost + onward)


def _along(values: NDArray[Any], axis: int, n_axes: int) -> NDArray[Any]:
    return values.reshape([-1 if each == axis else 1 for each in range(n_axes)])


def after(worth: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """The worth of the next state for each tuple of outcomes; the last client's varies fastest."""
    older = np.minimum(np.arange(1, len(worth) + 1), len(worth) - 1)  # position of age + 1
    found = [worth]
    for client in range(worth.ndim):
        found = [each.take(positions, axis=client) for each in found for positions in ([0], older)]
    return found


def _damped(worth: NDArray[np.float64], step: NDArray[np.float64]) -> NDArray[np.float64]:
    """Go a part of the way, so that rules that take turns do not make the iteration oscillate."""
    changed = worth + 0.5 * step
    return np.asarray(changed - changed.flat[0])


def solve(
    rates: ArrayLike,
    cap: int,
    weights: ArrayLike | None = None,
    most: int | None = None,
    precision: float = 1e-9,
) -> Solution:
    """Find the least possible cost per round."""
    n_clients, n_channels = np.shape(rates)
    importance = np.ones(n_clients) if weights is None else weights
    rounds = [Round(rates, importance, plan, cap) for plan in actions(n_clients, n_channels, most)]
    worth = np.zeros((cap,) * n_clients)
    while True:
        outcomes = after(worth)
        ahead = np.stack([each.look_ahead(outcomes) for each in rounds])
        better = ahead.min(axis=0)
        step = better - worth
        if np.ptp(step) < precision:
            return Solution(float(step.min()), float(step.max()), ahead)
        worth = _damped(worth, step)


def evaluate(
    rates: ArrayLike,
    rules: Sequence[NDArray[np.int64]],
    weights: ArrayLike | None = None,
    precision: float = 1e-9,
) -> tuple[float, float]:
    """Bracket the cost per round of a cycle of rules."""
    n_clients, cap = rules[0].shape[:2]
    importance = np.ones(n_clients) if weights is None else weights
    rounds = [Round(rates, importance, rule, cap) for rule in rules]
    worth = np.zeros((cap,) * n_clients)
    while True:
        ahead = worth
        for each in reversed(rounds):
            ahead = each.look_ahead(after(ahead))
        step = (ahead - worth) / len(rules)
        if np.ptp(step) < precision:
            return float(step.min()), float(step.max())
        worth = _damped(worth, step)


# ----------------------------------------------------------------------------- rules for any fleet


def most_worth(values: NDArray[np.float64], most: int | None = None) -> NDArray[np.int64]:
    """Maximise the sum of values, shape (M, N, cap): client, channel, age.

    Who is as old as ``cap`` goes first: a client whose age is cut off might wait for ever.
    """
    n_clients, n_channels, cap = values.shape
    values = np.concatenate([values[..., :-1], FIRST * values[..., -1:]], axis=-1)
    plans = actions(n_clients, n_channels, most)
    sums = [
        sum(_along(values[i, k], i, n_clients) for i, k in enumerate(plan) if k >= 0)
        + np.zeros((cap,) * n_clients)
        for plan in plans
    ]
    return np.moveaxis(np.array(plans)[np.argmax(sums, axis=0)], -1, 0)


def squares(rates: ArrayLike, weights: ArrayLike, cap: int) -> NDArray[np.float64]:
    """Values w μ a (a + 1)."""
    age = np.arange(1, cap + 1)
    return np.asarray(weights)[:, None, None] * np.asarray(rates)[:, :, None] * age * (age + 1)


def one_step(rates: ArrayLike, weights: ArrayLike, cap: int) -> NDArray[np.float64]:
    """Values w μ a: the cost of the next round is least."""
    return squares(rates, weights, cap) / (np.arange(1, cap + 1) + 1)


def whittle(rates: ArrayLike, weights: ArrayLike, cap: int) -> NDArray[np.float64]:
    """Whittle's index of each link: the price per transmission at which it just pays to send."""
    age, rate = np.arange(1, cap + 1), np.asarray(rates)[:, :, None]
    return np.asarray(weights)[:, None, None] * (rate * age**2 + (2 - rate) * age) / 2


def oldest_first(
    rates: ArrayLike, weights: ArrayLike, cap: int, most: int | None = None
) -> NDArray[np.int64]:
    """The oldest, of equal ages the weightiest, takes its best channel, and so on."""
    n_clients, n_channels = np.shape(rates)
    rule = np.full((n_clients, *(cap,) * n_clients), -1)
    n_pairs = min(n_clients, n_channels, n_clients if most is None else most)
    for ages in np.ndindex(rule.shape[1:]):
        free = set(range(n_channels))
        order = sorted(range(n_clients), key=lambda i: (-ages[i], -np.asarray(weights)[i]))
        for client in order[:n_pairs]:
            best = max(sorted(free), key=lambda k: np.asarray(rates)[client, k])
            rule[(client, *ages)] = best
            free.remove(best)
    return rule


# ------------------------------------------------- rules for two clients, the first channel better


def age_sorted(cap: int) -> list[NDArray[np.int64]]:
    """The older client gets channel 0, which must be the better one."""
    age = np.arange(cap)
    second_is_older = (age[None, :] > age[:, None]).astype(np.int64)
    return [np.stack([second_is_older, 1 - second_is_older])]


def taking_turns(cap: int) -> list[NDArray[np.int64]]:
    """Client 0 has channel 0 in every second round."""
    straight = never_changing(cap)[0]
    return [straight, straight[::-1]]


def never_changing(cap: int) -> list[NDArray[np.int64]]:
    """Client 0 keeps channel 0."""
    return [np.stack([np.full((cap, cap), channel) for channel in range(2)])]
