"""How the functions of this package read their arguments, and which variants there are."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from freshband.errors import ParameterError, shown

__all__ = [
    "Variant",
    "at_most",
    "is_literal",
    "numbers",
    "positive_numbers",
    "probabilities",
    "whole_numbers",
]

Variant = Literal["corrected", "literal"]


def is_literal(variant: str) -> bool:
    """Return whether the printed form is asked for, and not the true one.

    Examples
    --------
    >>> is_literal("literal"), is_literal("corrected")
    (True, False)
    """
    if variant not in ("corrected", "literal"):
        raise ParameterError(f"variant must be 'corrected' or 'literal', got {shown(variant)}")
    return variant == "literal"


def numbers(name: str, values: ArrayLike, allowed: str = "numbers") -> NDArray[np.float64]:
    """Return values as floats, or say what is allowed.

    Examples
    --------
    >>> numbers("gap", 3).item()
    3.0
    """
    try:
        given = np.asarray(values)
        if given.dtype.kind not in "iuf":
            raise ValueError
    except ValueError:  # a ragged list, or no numbers at all
        raise ParameterError(f"{name} must be {allowed}, got {shown(values)}") from None
    return given.astype(np.float64)


def probabilities(name: str, values: ArrayLike, *, above_zero: bool = False) -> NDArray[np.float64]:
    """Return values in [0, 1], or in (0, 1].

    Examples
    --------
    >>> probabilities("means", [0, 0.5]).tolist()
    [0.0, 0.5]
    """
    allowed = "numbers in (0, 1]" if above_zero else "numbers in [0, 1]"
    given = numbers(name, values, allowed)
    wrong = ~((given > 0 if above_zero else given >= 0) & (given <= 1))  # NaN is wrong too
    if wrong.any():
        raise ParameterError(f"{name} must be {allowed}, got {given[wrong][0]}")
    return given


def positive_numbers(name: str, values: ArrayLike, *, or_zero: bool = False) -> NDArray[np.float64]:
    """Return finite values > 0, or >= 0.

    Examples
    --------
    >>> positive_numbers("smoothness", [1, 2.5]).tolist()
    [1.0, 2.5]
    """
    allowed = f"finite numbers {'>=' if or_zero else '>'} 0"
    given = numbers(name, values, allowed)
    wrong = ~((given >= 0 if or_zero else given > 0) & np.isfinite(given))
    if wrong.any():
        raise ParameterError(f"{name} must be {allowed}, got {given[wrong][0]}")
    return given


def whole_numbers(name: str, values: ArrayLike, *, at_least: int) -> NDArray[np.float64]:
    """Return whole values from ``at_least`` on, as floats: products of them do not overflow.

    Examples
    --------
    >>> whole_numbers("rounds", [10, 20], at_least=1).tolist()
    [10.0, 20.0]
    """
    allowed = f"whole numbers >= {at_least}"
    given = numbers(name, values, allowed)
    wrong = ~((given >= at_least) & (np.floor(given) == given) & np.isfinite(given))
    if wrong.any():
        raise ParameterError(f"{name} must be {allowed}, got {given[wrong][0]}")
    return given


def at_most(
    name: str, values: NDArray[np.float64], limit_name: str, limit: NDArray[np.float64]
) -> None:
    """Raise unless every value is at most its limit.

    Examples
    --------
    >>> at_most("served", np.array(2.0), "n_clients", np.array([3.0, 4.0]))
    """
    wrong = values > limit
    if wrong.any():
        most, got = (np.broadcast_to(each, wrong.shape)[wrong][0] for each in (limit, values))
        raise ParameterError(f"{name} must be at most {limit_name} = {most:g}, got {got:g}")
