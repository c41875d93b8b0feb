"""Theorem 1: how far training is from the optimum, given which uploads got through.

Chapter "Theorem 1" of the documentation has the setting, the assumptions and the proof.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from freshband.aoi import ages_of
from freshband.errors import ParameterError
from freshband.theory._inputs import (
    Array,
    Flags,
    Variant,
    is_literal,
    positive_numbers,
    whole_numbers,
)
from freshband.theory.bound import Bound


@dataclass(frozen=True, eq=False)
class ConvergenceBound(Bound):
    """Theorem 1's bound after every round, and its parts.

    Attributes
    ----------
    value : float64 array, shape (rounds + 1, ...)
        Bound on `E[F(w_t)] - F*` for t = 0 … T.
    contraction : float64 array, shape (...)
        The factor by which a round shrinks the gap: `1 - μh`, or the printed Ω.
    errors : mapping of str to float64 array, shape (rounds, ...)
        The amount that each round adds to the gap, by cause.
    mismatch : mapping of str to float64 array, shape (rounds, ...)
        Corrected variant only: how far the mean gradient the server applies may be from `∇F(w_t)`
        because of missing ``participation``, ``staleness`` and ``drift``. The error called
        ``mismatch`` is `h/2` times the square of their sum.
    """

    contraction: Array
    errors: Mapping[str, Array]
    mismatch: Mapping[str, Array]


def convergence_bound(
    delivered: ArrayLike,
    *,
    gap: ArrayLike,
    smoothness: ArrayLike,
    gradient: ArrayLike,
    step: ArrayLike,
    local_steps: ArrayLike = 1,
    noise: ArrayLike = 0.0,
    pl: ArrayLike | None = None,
    variant: Variant = "corrected",
) -> ConvergenceBound:
    """Return Theorem 1's bound on `E[F(w_t)] - F*`, round by round.

    With `h = ηE`, `f_t = |S_t|/M` and the mean staleness `s_t`:

        E F(w_{t+1}) - F* <= (1 - μh) (E F(w_t) - F*)
            + (h/2) G² [2(1 - f_t) + Lh s_t + Lη(E-1)/2]²           (mismatch)
            + Lh²σ² / (2|S_t|E)                                       (noise)
            + L²h²η Gσ (E²-1) / (6|S_t|E)                             (coupling)

    where the last two are 0 in a round in which no upload gets through.

    **Deviations** (erratum E3). The printed rate needs `‖∇F‖² >= 2L(F - F*)`, the wrong direction
    of smoothness; only a PL constant gives a rate. Ω prints λ for λ², α3 misses η², staleness and
    drift are missing from the inner product, and the age enters without the printed factor K. The
    staleness of an update that arrives is `a_i(t-1) - 1`, not `a_i(t)` (erratum E1). The bound is
    loose: use it to rank settings, not to predict a loss.

    Parameters
    ----------
    delivered : array of bool, shape (rounds, ..., M)
        Which clients got through. All start with age 1; further axes are further runs.
    gap : array of float >= 0
        `F(w_0) - F*`. This and all following parameters broadcast to the further axes.
    smoothness : array of float > 0
        L: every `∇F_i` is L-Lipschitz.
    gradient : array of float > 0
        G: `E‖g‖² <= G²` for the stochastic gradients at all models and local iterates of the run.
    step : array of float > 0
        η, the length of a local step.
    local_steps : array of int >= 1, default 1
        E, the number of local steps before an upload; λ in the paper's appendix.
    noise : array of float >= 0, default 0
        σ: `E‖g - ∇F_i‖² <= σ²`.
    pl : array of float > 0
        μ, the Polyak–Łojasiewicz constant: `‖∇F‖² >= 2μ(F - F*)`; needed by the corrected variant.
    variant : {"corrected", "literal"}, default "corrected"
        What is proved, under the conditions `Lh <= 1`, `μ <= L` and `σ <= G`; or (10) as printed,
        under `η < 1/(9L)`.

    Examples
    --------
    All clients always get through: the gap shrinks by `1 - μh` per round, and nothing is added.

    >>> fine = dict(gap=1.0, smoothness=1.0, gradient=1.0, step=0.5, pl=0.5)
    >>> convergence_bound(np.ones((3, 2)), **fine).value.round(4).tolist()
    [1.0, 0.75, 0.5625, 0.4219]

    One of two clients misses the second round:

    >>> bound = convergence_bound([[1, 1], [1, 0], [1, 1]], **fine)
    >>> bound.mismatch["participation"].tolist(), bound.mismatch["staleness"].tolist()
    ([0.0, 1.0, 0.0], [0.0, 0.0, 0.25])
    """
    literal = is_literal(variant)
    success = _read_deliveries(delivered)
    shape = success.shape[1:-1]
    if pl is None and not literal:
        raise ParameterError("pl must be given: without it no linear rate holds (erratum E3)")
    given = {
        "gap": positive_numbers("gap", gap, or_zero=True),
        "smoothness": positive_numbers("smoothness", smoothness),
        "gradient": positive_numbers("gradient", gradient),
        "step": positive_numbers("step", step),
        "local_steps": whole_numbers("local_steps", local_steps, at_least=1),
        "noise": positive_numbers("noise", noise, or_zero=True),
        "pl": positive_numbers("pl", 1.0 if pl is None else pl),
    }
    for name, value in given.items():
        try:
            given[name] = np.broadcast_to(value, shape)
        except ValueError:
            raise ParameterError(
                f"{name} must broadcast to the runs {shape} of delivered, got {value.shape}"
            ) from None
    constants = _Constants(**given)
    parts = _literal(success, constants) if literal else _corrected(success, constants)
    contraction, errors, mismatch, conditions = parts
    added = np.asarray(sum(errors.values()))
    value = np.empty((len(success) + 1, *shape))
    value[0] = constants.gap
    for t in range(len(success)):
        value[t + 1] = contraction * value[t] + added[t]
    return ConvergenceBound(value, "upper", conditions, contraction, errors, mismatch)


class _Constants(NamedTuple):
    gap: Array  # F(w_0) - F*
    smoothness: Array  # L
    gradient: Array  # G
    step: Array  # η
    local_steps: Array  # E
    noise: Array  # σ
    pl: Array  # μ


_Parts = tuple[Array, dict[str, Array], dict[str, Array], dict[str, Flags]]


def _corrected(success: Flags, constants: _Constants) -> _Parts:
    _, L, G, step, E, noise, pl = constants  # noqa: N806 - as in the proof
    whole = step * E  # h
    served = success.sum(axis=-1)
    alone = np.where(served > 0, 1.0 / np.maximum(served, 1), 0.0)
    mismatch = {
        "participation": 2.0 * (1.0 - served / success.shape[-1]) * G,
        "staleness": L * whole * (_ages(success, "pre") - 1.0).mean(axis=-1) * G,
        "drift": np.broadcast_to(L * step * (E - 1.0) / 2.0 * G, served.shape),
    }
    errors = {
        "mismatch": whole / 2.0 * np.asarray(sum(mismatch.values())) ** 2,
        "noise": L * whole**2 * noise**2 / (2.0 * E) * alone,
        "coupling": (L * whole) ** 2 * step * G * noise * (E**2 - 1.0) / (6.0 * E) * alone,
    }
    conditions = {
        "smoothness * step * local_steps <= 1": np.asarray(L * whole <= 1.0),
        "pl <= smoothness": np.asarray(pl <= L),
        "noise <= gradient": np.asarray(noise <= G),
    }
    return 1.0 - pl * whole, errors, mismatch, conditions


def _literal(success: Flags, constants: _Constants) -> _Parts:
    clients = success.shape[-1]
    _, L, G, step, lam, noise, _ = constants  # noqa: N806 - as the paper prints it
    missing = 1.0 - success.mean(axis=-1)
    alpha_1 = 6.0 * L * step**2 * lam**2 + 2.0 * step * lam
    alpha_2 = 9.0 * clients * L**3 * step**4 * lam**4 * (noise**2 + G**2)
    alpha_3 = (
        3.0 * L * step**2 * lam**2 * noise**2 / 2.0
        + 3.0 * L**3 * step**2 * G**2 * lam**3 * (lam - 1.0) * (2.0 * lam - 1.0) / 4.0
    )
    errors = {
        "participation": alpha_1 * missing**2 * G**2,
        "age": alpha_2 * _ages(success, "post").mean(axis=-1) ** 2,
        "rest": np.broadcast_to(alpha_3, missing.shape),
    }
    for name in ("participation", "age"):
        errors[name][:1] = 0.0  # the printed sums begin at t = 1
    contraction = 1.0 - step * lam * L + 9.0 * step**2 * L**2 * lam
    conditions = {
        "step < 1 / (9 smoothness)": np.asarray(step < 1.0 / (9.0 * L)),
        "contraction < 1": np.asarray(contraction < 1.0),
    }
    return contraction, errors, {}, conditions


def _ages(success: Flags, clock: Literal["pre", "post"]) -> Array:
    flat = success.reshape(len(success), -1)
    return ages_of(flat, clock).reshape(success.shape).astype(float)


def _read_deliveries(delivered: ArrayLike) -> Flags:
    given = np.asarray(delivered)
    if given.dtype.kind not in "biuf" or given.ndim < 2 or given.shape[-1] == 0:
        raise ParameterError(
            f"delivered must be yes or no, shape (rounds, ..., M), got shape {given.shape}"
        )
    return np.asarray(given == 1)
