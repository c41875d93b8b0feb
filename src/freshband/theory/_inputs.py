"""How the functions of this package read their arguments, and which variants there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from freshband.errors import ParameterError, shown

Array: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]
Variant = Literal["corrected", "literal"]


def is_literal(variant: str) -> bool:
    """Return whether the printed form, not the corrected one, is requested."""
    if variant not in ("corrected", "literal"):
        raise ParameterError(f"variant must be 'corrected' or 'literal', got {shown(variant)}")
    return variant == "literal"


def numbers(
    name: str,
    values: ArrayLike,
    allowed: str,
    is_allowed: Callable[[Array], Flags] | None = None,
) -> Array:
    """Return values as floats, or raise an error that says what is allowed."""
    try:
        given = np.asarray(values)
        if given.dtype.kind not in "iuf":
            raise ValueError
    except ValueError:  # a ragged list, or no numbers at all
        raise ParameterError(f"{name} must be {allowed}, got {shown(values)}") from None
    given = given.astype(np.float64)
    if is_allowed is not None and not (fits := is_allowed(given)).all():
        raise ParameterError(f"{name} must be {allowed}, got {given[~fits][0]}")
    return given


def probabilities(
    name: str, values: ArrayLike, *, above_zero: bool = False, shape: str | None = None
) -> Array:
    """Return values in [0, 1], or in (0, 1]; with a shape, a single number is an error."""
    if above_zero:
        given = numbers(name, values, "numbers in (0, 1]", lambda x: (x > 0) & (x <= 1))
    else:
        given = numbers(name, values, "numbers in [0, 1]", lambda x: (x >= 0) & (x <= 1))
    if shape is not None and given.ndim == 0:
        raise ParameterError(f"{name} must have the shape {shape}, got a single number")
    return given


def positive_numbers(name: str, values: ArrayLike, *, or_zero: bool = False) -> Array:
    """Return finite values > 0, or >= 0."""
    if or_zero:
        return numbers(name, values, "finite numbers >= 0", lambda x: (x >= 0) & np.isfinite(x))
    return numbers(name, values, "finite numbers > 0", lambda x: (x > 0) & np.isfinite(x))


def whole_numbers(name: str, values: ArrayLike, *, at_least: int) -> Array:
    """Return whole numbers >= ``at_least`` as floats, whose products do not overflow."""
    return numbers(
        name,
        values,
        f"whole numbers >= {at_least}",
        lambda x: (x >= at_least) & (np.floor(x) == x) & np.isfinite(x),
    )


def at_most(name: str, values: Array, limit_name: str, limit: Array) -> None:
    """Raise unless every value is at most its limit."""
    wrong = values > limit
    if wrong.any():
        most, got = (np.broadcast_to(each, wrong.shape)[wrong][0] for each in (limit, values))
        raise ParameterError(f"{name} must be at most {limit_name} = {most:g}, got {got:g}")


def problem(
    n_clients: ArrayLike, n_channels: ArrayLike, rounds: ArrayLike
) -> tuple[Array, Array, Array]:
    """Return M, N and T, of which M must be at most N."""
    clients = whole_numbers("n_clients", n_clients, at_least=1)
    channels = whole_numbers("n_channels", n_channels, at_least=1)
    at_most("n_clients", clients, "n_channels", channels)
    return clients, channels, whole_numbers("rounds", rounds, at_least=1)


def worst_and_best(worst: ArrayLike | None, best: ArrayLike | None) -> tuple[Array, Array]:
    """Return the two means that the corrected upper bounds need."""
    if worst is None or best is None:
        raise ParameterError("worst and best must be given with variant='corrected'")
    low = probabilities("worst", worst, above_zero=True)
    high = probabilities("best", best, above_zero=True)
    at_most("worst", low, "best", high)
    return low, high
