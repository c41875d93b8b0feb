"""Channels that may change in any round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import numpy as np
import numpy.typing as npt
from pydantic import model_validator

from freshband.channels._fields import LinkBand, Probability, forbid
from freshband.channels.base import _Flags, _Floats, _Rng, register
from freshband.channels.streams import _FRAME, carry_forward, held


@final
@register("switching")
class Switching(LinkBand):
    """Success rates that are drawn again at random times.

    In every round a switch happens with probability ``hazard``, so regimes last `1/hazard` rounds
    on average (geometrically distributed). At a switch a channel takes a new mean from U[mean_low,
    mean_high]. Either the switches are common to all channels, each of which takes part with
    probability ``p_change`` (*global switching*), or every channel has its own switches (*per-arm
    switching*). With a large hazard this is the paper's "extremely non-stationary" environment: it
    is fixed in advance and changes before it can be learnt.

    Parameters
    ----------
    n_channels : int >= 1, default 5
        Number of channels N.
    mean_low, mean_high : float, 0 <= mean_low <= mean_high <= 1, default 0.1 and 0.9
        The means are drawn from U[mean_low, mean_high].
    hazard : float in [0, 1], default 0.001
        Probability of a switch per round.
    p_change : float in [0, 1], default 1
        Probability that a channel takes part in a common switch. A switch in which no channel
        does is no breakpoint; breakpoints occur at a rate of `hazard (1 − (1−p)^N)`.
    per_channel : bool, default False
        Whether every channel switches on its own, with probability ``hazard`` in every round; with
        ``per_client`` every link that differs does.
    per_client : bool, default False
        Whether links differ per client; `Stationary` explains this and the next two.
    p_differ : float in [0, 1], default 1
        Probability that a link has means of its own.
    offset_sd : float in [0, 10], default 0
        Standard deviation of the clients' offsets, instead of ``p_differ``.

    Notes
    -----
    **Deviations.** The paper says only that an adversary fixes the sequences in advance, not how.

    Examples
    --------
    >>> from freshband.channels import Switching, open_air
    >>> air = open_air(Switching(n_channels=2, hazard=0.2), rounds=20, seed=3)
    >>> len(air.block(20).states), air.breakpoints
    (20, array([ 9, 15]))

    References
    ----------
    J. Mellor, J. Shapiro, "Thompson sampling in switching environments with Bayesian online
    change detection", AISTATS 2013: global and per-arm switching.
    """

    hazard: Probability = 0.001
    p_change: Probability = 1.0
    per_channel: bool = False

    @model_validator(mode="after")
    def _agree(self) -> Switching:
        if self.per_channel:
            forbid(self, "per_channel is given", "p_change")
        return self

    def _pieces(self, rounds: int, structure: _Rng) -> Iterator[_Floats]:
        """Yield means, drawing the switches of one frame at a time."""
        means = self._draw(structure)
        while True:
            at, change = self._switches(structure)
            rows = carry_forward(means, self._draw(structure, len(at)), change)
            lengths = np.diff(np.concatenate([[0], at, [_FRAME]]))
            rows = np.concatenate([means[None], rows])
            lasting = lengths > 0  # the first is empty where the frame begins with a switch
            yield from held(rows[lasting], lengths[lasting])
            means = rows[-1]

    def _switches(self, structure: _Rng) -> tuple[npt.NDArray[np.int64], _Flags]:
        """Draw the rounds of a frame with a switch, and the channels that take part in each."""
        slots = _FRAME * self.n_channels if self.per_channel else _FRAME
        count = structure.binomial(slots, self.hazard)
        drawn = np.sort(structure.choice(slots, count, replace=False, shuffle=False))
        if not self.per_channel:
            return drawn, structure.random((count, self.n_channels)) < self.p_change
        at, row = np.unique(drawn // self.n_channels, return_inverse=True)
        change = np.zeros((len(at), self.n_channels), np.bool_)
        change[row, drawn % self.n_channels] = True
        return at, change
