"""How fresh any fleet can be kept on links of known rates: a bound for every policy.

Chapter "More clients than channels" has the proof.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from freshband._jit import entry_point, kernel
from freshband.errors import ParameterError
from freshband.matching._assignment import assign
from freshband.parameters import whole_number
from freshband.theory._inputs import Array, positive_numbers, probabilities
from freshband.theory.bound import Bound

_STEPS = 5000  # each is one assignment problem
_GAP = 1e-4  # as a fraction; what is left of it is subtracted


def weighted_age_bound(
    rates: ArrayLike,
    n_clients: int | None = None,
    *,
    weights: ArrayLike | None = None,
    max_transmissions: int | None = None,
) -> Bound:
    """Return a lower bound on every policy's long-run weighted mean age `Σ w_i a_i / Σ w_i`.

    It is the minimum of `Σ w_i f_i(q_i) / Σ w_i` over all rates of delivery `q_i = Σ_k μ_ik x_ik`
    that shares `x_ik` of the rounds allow: at most 1 for each client and for each channel, at most
    `max_transmissions` in all. `f_i(q) = ½ (1 + 1/q + q (1-p)/p²)` with `p = max_k μ_ik` is the
    least mean age of a client that delivers `q` times per round. For one client, or if each has a
    best channel of its own, the bound is attained.

    **Deviations.** Not in the paper. Kadota et al. have the same bound without the last term of
    `f_i`, for one channel.

    Parameters
    ----------
    rates : array of float in [0, 1], shape (N,) or (M, N)
        Success rates of channels that all clients share, or of each link; they do not change. Each
        client needs one above 0.
    n_clients : int >= 1, optional
        The number of clients M; needed for shared rates.
    weights : array of float > 0, shape (M,), optional
        The importance of each client, all equal by default.
    max_transmissions : int >= 1, optional
        How many clients may send in a round, by default as many as there are channels.

    Examples
    --------
    >>> round(float(weighted_age_bound([0.5], 1).value), 4)  # one client: exact, 1/μ
    2.0
    >>> bound = weighted_age_bound([0.9, 0.5], 4, weights=[3, 1, 1, 1])
    >>> bound.kind, round(float(bound.value), 2)
    ('lower', 1.86)

    References
    ----------
    I. Kadota, A. Sinha, E. Uysal-Biyikoglu, R. Singh and E. Modiano, "Scheduling policies for
    minimizing age of information in broadcast wireless networks", IEEE/ACM Trans. Netw. 26(6),
    2018.
    """
    links = _read_links(rates, n_clients)
    importance = np.ones(len(links)) if weights is None else positive_numbers("weights", weights)
    if importance.shape != links.shape[:1]:
        raise ParameterError(
            f"weights must be one number for each of {len(links)} clients, "
            f"got the shape {importance.shape}"
        )
    most = min(links.shape)
    if max_transmissions is not None:
        most = min(most, whole_number("max_transmissions", max_transmissions, at_least=1))
    share = importance / importance.sum()
    value = _relax(np.ascontiguousarray(links), share, links.max(axis=1), most)
    return Bound(np.asarray(value), "lower", {})


def _read_links(rates: ArrayLike, n_clients: int | None) -> Array:
    """Return rates of shape (M, N)."""
    links = probabilities("rates", rates, shape="(N,) or (M, N)")
    if links.ndim == 1:
        if n_clients is None:
            raise ParameterError("n_clients must be given with rates of shape (N,)")
        count = whole_number("n_clients", n_clients, at_least=1)
        links = np.broadcast_to(links, (count, len(links)))
    if links.ndim != 2 or (n_clients is not None and len(links) != n_clients) or not links.size:
        raise ParameterError(
            "rates must have the shape (N,), or (M, N) with M = n_clients, "
            f"got {links.shape} and n_clients = {n_clients}"
        )
    if not (links.max(axis=1) > 0).all():
        raise ParameterError("rates must be above 0 on at least one channel of each client")
    return links


@entry_point
def _relax(rates: Any, weights: Any, best: Any, most: int) -> float:
    """Minimise `Σ w f(q)` from below: the conditional gradient method (Frank and Wolfe).

    By convexity `Σ w f(q)` less the largest gain that the gradient promises is a bound at every q;
    the vertex that promises it is the assignment for urgencies `-w f'(q)`.
    """
    n_clients, n_channels = rates.shape
    clients, channels = np.arange(n_clients), np.arange(n_channels)
    q, way, urgency = np.zeros(n_clients), np.zeros(n_clients), np.zeros(n_clients)
    plan = np.zeros(n_clients, np.int64)
    for i in range(n_clients):
        for k in range(n_channels):
            q[i] += rates[i, k] * most / (n_clients * n_channels)
    bound = 0.0
    for _ in range(_STEPS):
        cost, gap = 0.0, 0.0
        for i in range(n_clients):
            cost += weights[i] * 0.5 * (1.0 + 1.0 / q[i] + q[i] * _spread(best[i]))
            urgency[i] = weights[i] * _slope(q[i], best[i])
            plan[i] = -1
        assign(urgency, rates, clients, channels, most, plan)
        for i in range(n_clients):
            way[i] = (rates[i, plan[i]] if plan[i] >= 0 else 0.0) - q[i]
            gap += urgency[i] * way[i]
        bound = max(bound, cost - gap)
        if gap <= _GAP * cost:
            break
        low, high = 0.0, 1.0
        for _ in range(50):  # bisection: along the way the gain falls
            middle, gain = 0.5 * (low + high), 0.0
            for i in range(n_clients):
                gain += weights[i] * _slope(q[i] + middle * way[i], best[i]) * way[i]
            if gain > 0:
                low = middle
            else:
                high = middle
        for i in range(n_clients):
            q[i] += low * way[i]
    return bound


@kernel
def _spread(best: float) -> float:
    """Return the variance of the number of trials that a success takes."""
    return (1.0 - best) / best**2


@kernel
def _slope(q: float, best: float) -> float:
    """Return `-f'(q)`, which is positive for q up to the best rate."""
    return 0.5 * (1.0 / q**2 - _spread(best))
