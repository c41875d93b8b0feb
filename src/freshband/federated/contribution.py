"""What a client is worth: equations (32) to (35), (41) and (42), and their repair.

The server keeps the last gradient and the last model it received of every client. Client m's
contribution is how much the rest differs from it (cosine of gradients) times how badly the rest
does on its data (error of the model without it). Both need the federation *without* m, which is
computed from the whole by subtraction, not by training again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations
from typing import Annotated, Any, Final, Literal, final, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from freshband.errors import ParameterError
from freshband.parameters import Parameters

_LeaveOneOut = Literal["global_minus", "buffer", "literal"]
_LEAVE_ONE_OUT: tuple[str, ...] = get_args(_LeaveOneOut)
_ColdStart = Literal["mean", "max", "zero"]
_ALONE: Final = 1.0 - 1e-12  # a client with all the weight leaves nothing to compare with


@final
class ValuationOptions(Parameters):
    """How clients are valued, beside the rule that computes their contributions.

    Parameters
    ----------
    loo : {"global_minus", "buffer", "literal"}, default "global_minus"
        How one client is left out; see `leave_one_out`.
    cold_start : {"mean", "max", "zero"}, default "mean"
        The contribution of a client never heard.
    error_samples : int >= 1, optional
        The largest number of validation samples an error is measured on; by default half of what a
        client trains on in a round, which keeps it cheap.
    """

    loo: _LeaveOneOut = "global_minus"
    cold_start: _ColdStart = "mean"
    error_samples: Annotated[int, Field(ge=1)] | None = None


def _without_one(whole: Any, own: NDArray[Any], zeta: Any) -> NDArray[Any]:
    """Return `(x - ζ_m x_m) / (1 - ζ_m)`, equations (41) and (42), for `ζ_m` below `_ALONE`."""
    return np.asarray((whole - zeta * own) / (1 - zeta))


def leave_one_out(
    whole: NDArray[np.float64],
    parts: NDArray[np.float64],
    weights: ArrayLike,
    form: _LeaveOneOut = "global_minus",
) -> NDArray[np.float64]:
    """Return what the whole would be without each part, equations (41) and (42).

    * ``global_minus``: `(x - ζ_m x_m) / (1 - ζ_m)`, exact when `x = Σ ζ_j x_j`.
    * ``buffer``: `Σ_{j≠m} ζ_j x_j / (1 - ζ_m)`, from the parts alone.
    * ``literal``: `(1 - ζ_m x_m) / (1 - ζ_m)`, as printed, for study.

    Parameters
    ----------
    whole : float array, shape (n_parameters,)
        The global gradient or model `x`.
    parts : float array, shape (n_clients, n_parameters)
        What each client last delivered, `x_m`.
    weights : array of float in [0, 1], shape (n_clients,)
        `ζ`, summing to 1. A client that has all the weight leaves nothing: `x^{-m} = x`.
    form : {"global_minus", "buffer", "literal"}, default "global_minus"
        The formula.

    Notes
    -----
    **Deviations** (erratum E9). The printed numerators begin with 1 where the global quantity must
    stand; taken literally every client's cosine distance is about 1, which tells nothing.

    Examples
    --------
    >>> parts = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
    >>> weights = np.array([0.5, 0.25, 0.25])
    >>> leave_one_out(weights @ parts, parts, weights)[0].tolist()
    [1.0, 1.5]
    """
    zeta = np.asarray(weights, dtype=np.float64)
    if parts.ndim != 2 or whole.shape != parts.shape[1:] or zeta.shape != parts.shape[:1]:
        raise ParameterError(
            "whole, parts and weights must have the shapes (P,), (M, P) and (M,), got "
            f"{whole.shape}, {parts.shape} and {zeta.shape}"
        )
    if form not in _LEAVE_ONE_OUT:
        raise ParameterError(f"loo must be one of {', '.join(_LEAVE_ONE_OUT)}, got {form!r}")
    share = zeta[:, None]
    total = {"global_minus": whole[None], "buffer": (share * parts).sum(axis=0)[None]}
    alone = share >= _ALONE
    rest = _without_one(total.get(form, 1.0), parts, np.where(alone, 0.0, share))
    return np.where(alone, whole[None], rest)


def cosine_distance(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return `1 - cos(a, b)` over the last axis, equation (34): in [0, 2], and 1 for a zero vector.

    Examples
    --------
    >>> cosine_distance(
    ...     np.array([1.0, 0.0]), np.array([[2.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    ... ).tolist()
    [0.0, 1.0, 2.0]
    """
    product = (a * b).sum(axis=-1)
    lengths = np.sqrt((a * a).sum(axis=-1) * (b * b).sum(axis=-1))
    cosine = np.where(lengths > 0, product / np.where(lengths > 0, lengths, 1.0), 0.0)
    return np.asarray(1.0 - np.clip(cosine, -1.0, 1.0))


def _client_weights(contributions: ArrayLike) -> NDArray[np.float64]:
    """Return the weights `ζ_m = C_m / Σ_j C_j`, equation (43); equal ones if all `C_m` are 0.

    Examples
    --------
    >>> _client_weights([1.0, 3.0]).tolist()
    [0.25, 0.75]
    """
    c = np.asarray(contributions, dtype=np.float64)
    if c.ndim != 1 or c.size == 0 or not np.isfinite(c).all() or (c < 0).any():
        raise ParameterError(
            f"contributions must be finite numbers >= 0, one per client, got {contributions!r}"
        )
    total = c.sum()
    return c / total if total > 0 else np.full(c.shape, 1.0 / c.size)


def _fill_unheard(
    worth: NDArray[np.float64], heard: NDArray[np.bool_], cold_start: _ColdStart = "mean"
) -> NDArray[np.float64]:
    """Return contributions with those of clients never heard made up from the others.

    Where nobody was heard all are 1, or 0 with ``"zero"``.
    """
    if heard.all():
        return worth
    if not heard.any():
        return np.full(worth.shape, 0.0 if cold_start == "zero" else 1.0)
    known = worth[heard]
    fill = {"mean": known.mean(), "max": known.max(), "zero": 0.0}[cold_start]
    return np.where(heard, worth, fill)


def fedce_contributions(
    distances: NDArray[np.float64], errors: NDArray[np.float64], heard: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return one round's contributions as FedCE has them; it averages these over the rounds.

    Each factor is a share of its sum over clients, at least 0.001, and their product again a share:
    `c_m ∝ max(d_m / Σd, 0.001) max(e_m / Σe, 0.001)`, with the distances `Γcos` (34) and the errors
    `Γerr` (35). Clients never heard get none of it.

    References
    ----------
    M. Jiang et al., "Fair federated medical image segmentation via client contribution estimation",
    CVPR 2023.
    """
    product = np.where(heard, _shares(distances, heard) * _shares(errors, heard), 0.0)
    total = product.sum()
    return np.asarray(product / total) if total > 0 else product


def _shares(factor: NDArray[np.float64], heard: NDArray[np.bool_]) -> NDArray[np.float64]:
    kept = np.where(heard, factor, 0.0)
    total = kept.sum()
    share = kept / total if total > 0 else np.full(kept.shape, 1.0 / len(kept))
    return np.asarray(np.maximum(share, 1e-3))


def _shapley_values(
    value: Callable[[frozenset[int]], float], n_clients: int
) -> NDArray[np.float64]:
    """Return exact Shapley values, equation (32), by visiting all `2^M` coalitions, M <= 16.

    ``value`` says what a coalition is worth; it is called once for every subset, the empty one too.

    Examples
    --------
    >>> _shapley_values(lambda coalition: float(len(coalition) >= 2), 3).round(6).tolist()
    [0.333333, 0.333333, 0.333333]
    """
    if not 1 <= n_clients <= 16:
        raise ParameterError(f"n_clients must be a whole number in [1, 16], got {n_clients!r}")
    worth = {
        frozenset(members): float(value(frozenset(members)))
        for size in range(n_clients + 1)
        for members in combinations(range(n_clients), size)
    }
    result = np.zeros(n_clients)
    for coalition, amount in worth.items():
        size = len(coalition)
        for m in range(n_clients):
            if m in coalition:
                result[m] += amount / (n_clients * math.comb(n_clients - 1, size - 1))
            else:
                result[m] -= amount / (n_clients * math.comb(n_clients - 1, size))
    return result
