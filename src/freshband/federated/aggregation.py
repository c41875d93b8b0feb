"""How much of each arrived update the server takes: equations (7) and (43), and their repair.

An update is the gradient sum `G_i = (w^0 - w^E) / η` of equation (6). The server moves by

    w <- w - Σ_{i in S_t} s_i G_i

and this module computes the steps `s_i` from the weights `ζ` of all clients and the set `S_t` of
those whose update got through (erratum E7).
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from freshband.errors import ParameterError

__all__ = ["AGGREGATIONS", "Aggregation", "client_weights", "staleness_weight", "update_steps"]

Aggregation = Literal["renorm", "fixed", "mean_one", "uniform", "literal"]
AGGREGATIONS: tuple[str, ...] = get_args(Aggregation)


def client_weights(contributions: ArrayLike) -> NDArray[np.float64]:
    """Return the weights `ζ_m = C_m / Σ_j C_j` over all clients, equation (43).

    Parameters
    ----------
    contributions : array of float >= 0, shape (n_clients,)
        `C_m`. If all are 0 the weights are equal.

    Returns
    -------
    float64 array, shape (n_clients,)
        Sums to 1.

    Examples
    --------
    >>> client_weights([1.0, 3.0]).tolist()
    [0.25, 0.75]
    >>> client_weights([0.0, 0.0]).tolist()
    [0.5, 0.5]
    """
    c = np.asarray(contributions, dtype=np.float64)
    if c.ndim != 1 or c.size == 0 or not np.isfinite(c).all() or (c < 0).any():
        raise ParameterError(
            f"contributions must be finite numbers >= 0, one per client, got {contributions!r}"
        )
    total = c.sum()
    return c / total if total > 0 else np.full(c.shape, 1.0 / c.size)


def update_steps(
    weights: ArrayLike,
    delivered: ArrayLike,
    client_lr: float,
    rule: Aggregation = "renorm",
    server_lr: float = 1.0,
) -> NDArray[np.float64]:
    """Return the step `s_i` each client's update is applied with; 0 for those not delivered.

    * ``renorm``: `η_s η ζ_i / Σ_{j in S} ζ_j`, the weighted mean of what arrived.
    * ``fixed``: `η_s η ζ_i`, as if those that were not heard had changed nothing. Where few get
      through the model moves little, and a client heard alone cannot pull it to itself.
    * ``mean_one``: `η_s η M ζ_i / |S|`, which keeps the paper's `1/|S|` and equals Theorem 1's
      step when `ζ = 1/M`.
    * ``uniform``: `η_s η / |S|`.
    * ``literal``: `η_s ζ_i / |S|`, equation (7) as printed.

    Parameters
    ----------
    weights : array of float >= 0, shape (n_clients,)
        `ζ`, summing to 1.
    delivered : array of bool, shape (n_clients,)
        Whether the client is in `S_t`. If nobody is, all steps are 0: the model stays.
    client_lr : float > 0
        `η`, the clients' step.
    rule : {"renorm", "fixed", "mean_one", "uniform", "literal"}, default "renorm"
    server_lr : float > 0, default 1
        `η_s`.

    Notes
    -----
    **Deviations** (erratum E7). Equation (7) leaves out η although the proof uses it, and divides
    by `|S_t|` weights that sum to 1 over all M already: as printed the step is `1/(M η)` times the
    mean local change, 5 times too long at M=20, η=0.01.

    Examples
    --------
    >>> update_steps([0.5, 0.25, 0.25], [True, True, False], client_lr=0.3).round(12).tolist()
    [0.2, 0.1, 0.0]
    """
    zeta = np.asarray(weights, dtype=np.float64)
    arrived = np.asarray(delivered, dtype=bool)
    if zeta.ndim != 1 or zeta.shape != arrived.shape:
        raise ParameterError(
            "weights and delivered must have one entry per client, got shapes "
            f"{zeta.shape} and {arrived.shape}"
        )
    for name, rate in (("client_lr", client_lr), ("server_lr", server_lr)):
        if not (math.isfinite(rate) and rate > 0):
            raise ParameterError(f"{name} must be a number > 0, got {rate!r}")
    n_arrived = int(arrived.sum())
    if n_arrived == 0:
        return np.zeros(zeta.shape)
    if rule == "renorm":
        taken = zeta * arrived
        share = taken / taken.sum() if taken.sum() > 0 else arrived / n_arrived
    elif rule == "fixed":
        share = zeta * arrived
    elif rule == "mean_one":
        share = zeta * arrived * zeta.size / n_arrived
    elif rule == "uniform":
        share = arrived / n_arrived
    elif rule == "literal":
        share = zeta * arrived / (n_arrived * client_lr)
    else:
        raise ParameterError(f"aggregation must be one of {', '.join(AGGREGATIONS)}, got {rule!r}")
    return np.asarray(server_lr * client_lr * share, dtype=np.float64)


def staleness_weight(
    staleness: ArrayLike,
    form: Literal["constant", "polynomial", "hinge"] = "polynomial",
    *,
    a: float = 0.5,
    b: float = 4.0,
) -> NDArray[np.float64]:
    """Return how much a stale update counts in FedAsync, by model versions missed.

    ``polynomial`` is `(1 + s)^(-a)`; ``hinge`` is 1 up to `s = b`, then `1 / (a (s - b) + 1)`.

    Examples
    --------
    >>> staleness_weight([0, 3]).tolist()
    [1.0, 0.5]
    >>> staleness_weight([4, 6], "hinge").tolist()
    [1.0, 0.5]

    References
    ----------
    Xie, Koyejo, Gupta, "Asynchronous federated optimization", 2019.
    """
    s = np.asarray(staleness, dtype=np.float64)
    if not np.isfinite(s).all() or (s < 0).any():
        raise ParameterError(f"staleness must be numbers >= 0, got {staleness!r}")
    if form == "constant":
        return np.ones(s.shape)
    if form == "polynomial":
        return np.asarray((1.0 + s) ** -a)
    if form == "hinge":
        return np.where(s <= b, 1.0, 1.0 / (a * np.maximum(s - b, 0.0) + 1.0))
    raise ParameterError(f"form must be 'constant', 'polynomial' or 'hinge', got {form!r}")
