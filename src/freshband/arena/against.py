"""Tables against a policy, made by an adversary that has read the code of the policy."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import final

import numpy as np
from numpy.typing import NDArray
from pydantic import field_validator

from freshband._policy import parse_policy
from freshband.channels._fields import Count, RatedBand
from freshband.channels.base import Block, _Floats, _Rng, register
from freshband.contract import log_assignments
from freshband.errors import ParameterError


@final
@register("against")
class Against(RatedBand):
    """Channels that are bad whenever one policy, which makes no random choices, would use them.

    Before the run the adversary plays the policy by itself and lets nothing through. What the
    policy would choose in round t is blocked in round t: `μ_k(t) = 0`. All other channels keep
    their rates. So this policy never delivers anything, and its ages grow without bound, while one
    that chooses differently meets stationary channels of which some are blocked.

    Parameters
    ----------
    n_channels : int >= 1, default 5
        Number of channels N.
    mean_low, mean_high : float, 0 <= mean_low <= mean_high <= 1, default 0.1 and 0.9
        The means of free channels are drawn from U[mean_low, mean_high], once per run.
    means : list of float in [0, 1], optional
        The means of free channels themselves.
    policy : str, default "cucb"
        The policy; one that makes random choices is refused, because it cannot be foreseen.
    n_clients : int >= 1, default 2
        The number of clients for which the policy plans.

    Examples
    --------
    >>> from freshband import simulate
    >>> result = simulate(Against(policy="cucb"), "cucb,random", rounds=200, runs=2)
    >>> result.delivered.mean("run").sel(policy="cucb").item()
    0.0
    """

    policy: str = "cucb"
    n_clients: Count = 2

    @field_validator("policy")
    @classmethod
    def _foreseen(cls, value: str) -> str:
        if not is_deterministic(value):
            raise ParameterError(
                f"policy must make no random choices, for a table to be made against it, "
                f"got {value!r}"
            )
        return value

    def _pieces(self, rounds: int, structure: _Rng) -> Iterable[_Floats]:
        rates = self._rates(structure)
        means = np.broadcast_to(rates, (rounds, self.n_channels)).copy()
        chosen = _foresee(self.policy, self.n_clients, self.n_channels, rounds)
        np.put_along_axis(means, chosen, 0.0, axis=1)
        return [means]


@functools.lru_cache(maxsize=32)
def _foresee(
    policy: str, clients: int, channels: int, rounds: int, seed: int = 0
) -> NDArray[np.int64]:
    """Return the channels that a policy uses if nothing ever gets through, shape (T, M), sorted."""
    nothing = np.zeros((rounds, channels), np.uint8)
    air = Block(nothing, nothing.astype(np.float64))
    return np.sort(log_assignments(parse_policy(policy), air, clients, seed=seed), axis=1)


@functools.cache
def is_deterministic(policy: str) -> bool:
    """Whether a policy that learns makes the same choices whatever the seed.

    Examples
    --------
    >>> is_deterministic("cucb"), is_deterministic("random"), is_deterministic("oracle")
    (True, False, False)
    """
    parsed = parse_policy(policy)
    told = parsed.scheduler.sees_channels or parsed.scheduler.client_scores
    if told or parsed.needs_contributions:
        return False
    one, other = (_foresee(policy, 2, 5, 200, seed) for seed in (0, 1))
    return bool(np.array_equal(one, other))
