"""How index policies under their own names forget: by a sliding window, or by a discount."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from freshband.schedulers.base import _needed_horizon
from freshband.schedulers.index import Index


class Forgetting(Index):
    """What the published tuning of both needs to know of the environment."""

    n_breakpoints: int = Field(default=5, ge=1)


class Windowed(Forgetting):
    """Only the last ``window`` rounds count."""

    window: Annotated[int, Field(ge=1)] | Literal["auto"] = 200

    def memory(self, horizon: int | None) -> tuple[int | None, float | None]:
        """Return the window, `2 sqrt(T ln T / breakpoints)` if it is to be tuned."""
        if self.window != "auto":
            return self.window, None
        rounds = _needed_horizon(horizon, "window='auto'")
        return max(1, int(2.0 * math.sqrt(rounds * math.log(rounds) / self.n_breakpoints))), None


class Discounted(Forgetting):
    """Every round multiplies all counts by ``discount``."""

    discount: Annotated[float, Field(gt=0, lt=1)] | Literal["auto"] = 0.99

    def memory(self, horizon: int | None) -> tuple[int | None, float | None]:
        """Return the discount, `1 - sqrt(breakpoints / T) / 4` if it is to be tuned."""
        if self.discount != "auto":
            return None, self.discount
        rounds = _needed_horizon(horizon, "discount='auto'")
        return None, 1.0 - 0.25 * math.sqrt(min(1.0, self.n_breakpoints / rounds))
