"""What FedAsync and FedBuff have in common: stale updates count less."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from freshband.federated.algorithms.base import Rule


class Discounted(Rule):
    """A rule under which an update that missed s versions of the model counts less.

    ``polynomial`` is `(1 + s)^(-a)`; ``hinge`` is 1 up to `s = b`, then `1 / (a (s - b) + 1)`.

    References
    ----------
    Xie, Koyejo, Gupta, "Asynchronous federated optimization", 2019.
    """

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
        missed = np.maximum(staleness, 0).astype(np.float64)
        if self.staleness == "constant":
            return np.ones(missed.shape)
        if self.staleness == "polynomial":
            return np.asarray((1.0 + missed) ** -self.staleness_a)
        beyond = np.maximum(missed - self.staleness_b, 0.0)
        return np.where(beyond == 0, 1.0, 1.0 / (self.staleness_a * beyond + 1.0))
