"""What FedAsync and FedBuff have in common: stale updates count less."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from freshband.errors import ParameterError
from freshband.federated.algorithms.base import Rule

__all__ = ["Discounted", "staleness_weight"]


def staleness_weight(
    staleness: ArrayLike,
    form: Literal["constant", "polynomial", "hinge"] = "polynomial",
    *,
    a: float = 0.5,
    b: float = 4.0,
) -> NDArray[np.float64]:
    """Return how much a stale update counts, by the number of model versions missed.

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


class Discounted(Rule):
    """A rule under which stale updates count less, as `staleness_weight` says."""

    staleness: Literal["constant", "polynomial", "hinge"] = "polynomial"
    staleness_a: Annotated[float, Field(gt=0)] = 0.5
    staleness_b: Annotated[float, Field(ge=0)] = 4.0

    def unused(self) -> dict[str, str]:
        """Return the parameters of other forms of the discount."""
        homes = {} if self.staleness == "hinge" else {"staleness_b": "'hinge'"}
        if self.staleness == "constant":
            homes["staleness_a"] = "'polynomial' or 'hinge'"
        return {
            name: f"{name} belongs to staleness {home}, not to {self.staleness!r}, got "
            f"{getattr(self, name)!r}"
            for name, home in homes.items()
            if getattr(self, name) != type(self).model_fields[name].default
        }

    def discount(self, staleness: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return how much each update counts; those that did not arrive have a staleness of -1."""
        return staleness_weight(
            np.maximum(staleness, 0), self.staleness, a=self.staleness_a, b=self.staleness_b
        )
