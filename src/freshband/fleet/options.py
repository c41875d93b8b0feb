"""What a fleet is like: how many may send, how links, acknowledgements and lives are modelled."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from freshband.errors import ParameterError, shown
from freshband.parameters import Parameters

__all__ = ["FleetOptions", "Links", "ProofOfLife", "Silence"]

Links = Literal["shared", "differ"]
Silence = Literal["random", "loss"]
ProofOfLife = Literal["outcome", "delivery", "none"]

LEAST_WEIGHT: Final = 1e-150  # weights beyond these leave the range of numbers with large ages
MOST_WEIGHT: Final = 1e150


class FleetOptions(Parameters):
    """What the server assumes about its clients, beyond the paper's problem.

    Parameters
    ----------
    weights : list of float > 0, optional
        How much each client's age matters; 1 by default.
    max_transmissions : int >= 1, optional
        The largest number of clients that send in a round; by default as many as there are
        channels.
    links : {"shared", "differ"}, default "shared"
        Whether a channel is equally good for all clients, or each link has a success rate of its
        own.
    max_delay : int >= 0, default 100
        The number of rounds that an outcome may be late.
    silence : {"random", "loss"}, default "random"
        What an outcome means that does not arrive within ``max_delay`` rounds: nothing, because
        acknowledgements are lost at random, or a loss, because only deliveries are acknowledged.
    proof_of_life : {"outcome", "delivery", "none"}, default "outcome"
        What shows that a client is still there: any known outcome; only a delivery, where a dead
        client's silence is reported as a loss; or nothing has to, because all clients always are.
        With ``silence="loss"`` only a delivery does.

    Examples
    --------
    >>> FleetOptions(max_transmissions=3).most(n_clients=20, n_channels=5)
    3
    """

    weights: tuple[Annotated[float, Field(gt=0)], ...] | None = None
    max_transmissions: int | None = Field(default=None, ge=1)
    links: Links = "shared"
    max_delay: int = Field(default=100, ge=0, le=100_000)
    silence: Silence = "random"
    proof_of_life: ProofOfLife = "outcome"

    @property
    def proves_life(self) -> ProofOfLife:
        """What shows that a client is alive; a loss that nobody reported does not."""
        unreported = self.silence == "loss" and self.proof_of_life == "outcome"
        return "delivery" if unreported else self.proof_of_life

    def most(self, n_clients: int, n_channels: int) -> int:
        """Return the largest number of transmissions per round, S."""
        return min(n_clients, n_channels, self.max_transmissions or n_channels)


def read_weights(weights: ArrayLike | None, n_clients: int) -> NDArray[np.float64]:
    """Return a weight per client, or raise `ParameterError`."""
    if weights is None:
        return np.ones(n_clients)
    numbers = _numbers(weights)
    if numbers.shape != (n_clients,) or not (np.isfinite(numbers) & (numbers > 0)).all():
        raise ParameterError(
            f"weights must be {n_clients} finite numbers > 0, one per client, got {shown(weights)}"
        )
    _check_range("weights", numbers, weights)
    return numbers


def read_weight(weight: float) -> float:
    """Return the weight of one client, or raise `ParameterError`."""
    number = _numbers(weight)
    if number.shape != () or not (np.isfinite(number) and number > 0):
        raise ParameterError(f"weight must be a finite number > 0, got {shown(weight)}")
    _check_range("weight", number, weight)
    return float(number)


def _numbers(values: ArrayLike) -> NDArray[np.float64]:
    """Return numbers as an array; an empty one for text, truth values and the like."""
    try:
        given = np.asarray(values)
        return np.array(given, np.float64) if given.dtype.kind in "iuf" else np.zeros(0)
    except (TypeError, ValueError):
        return np.zeros(0)


def _check_range(name: str, numbers: NDArray[np.float64], given: ArrayLike) -> None:
    if not ((numbers >= LEAST_WEIGHT) & (numbers <= MOST_WEIGHT)).all():
        raise ParameterError(
            f"{name} must be from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}, got {shown(given)}"
        )
