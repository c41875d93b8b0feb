"""Channels under attack: a jammer with a budget blocks some of them for some of the time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, final

import numpy as np
import numpy.typing as npt
from pydantic import model_validator

from freshband.channels._fields import AtMost, Count, Probability, RatedBand, forbid
from freshband.channels.base import _Floats, _Rng, register
from freshband.channels.streams import _FRAME, held


@final
@register("jammer")
class Jammer(RatedBand):
    """Stationary channels, of which a jammer blocks ``width`` at a time.

    A blocked channel is always Bad; the others are Good with probability `μ_k`. The jammer works in
    periods of ``dwell`` rounds. It is active in `⌊BT/dwell⌋` of them, as many as the budget B
    allows (all at B = 1), spread uniformly at random over the run, so at most a share B of the
    rounds is jammed. Its plan is fixed before round 1 and never reacts to the scheduler, like that
    of the adversary in Sec. II-B.

    - `sweep` takes the next ``width`` channels in every active period and starts over after the
      last channel.
    - `random` takes ``width`` random channels in every active period.
    - `block` takes the same ``width`` channels for `⌊BT⌋` consecutive rounds, starting in a random
      round. Blocking consecutive rounds is what raises ages most (Banerjee and Ulukus).

    The means of a stream are 0 for a channel while it is jammed.

    Parameters
    ----------
    n_channels : int >= 1, default 5
        Number of channels N; follows from ``means`` where those are given.
    mean_low, mean_high : float, 0 <= mean_low <= mean_high <= 1, default 0.1 and 0.9
        The means of the free channels are drawn from U[mean_low, mean_high], once per run.
    means : list of float in [0, 1], optional
        The means of the free channels themselves.
    pattern : {"sweep", "random", "block"}, default "sweep"
        How the jammer moves.
    width : int in [1, n_channels], default 1
        Number of channels blocked at once.
    budget : float in [0, 1], default 0.5
        B, the largest share of the rounds in which the jammer may be active.
    dwell : int >= 1, default 10
        Length of a period in rounds; not with ``block``, which has only one period.
    oblivious : bool, default True
        Whether the jammer ignores how good the channels are. If false it knows the means, though
        still not what the scheduler does: it sweeps from the best channel to the worst, picks
        random channels with probabilities in proportion to their means, or blocks the best ones.

    Notes
    -----
    **Deviations.** The paper names hostile jamming and gives no model of it. None of these jammers
    reacts to the scheduler; otherwise its channels would differ between policies.

    Examples
    --------
    >>> from freshband.channels import Jammer, open_air
    >>> model = Jammer(means=[1, 1, 1], budget=1, dwell=2)
    >>> open_air(model, rounds=6, seed=0).block(6).states.tolist()
    [[0, 1, 1], [0, 1, 1], [1, 0, 1], [1, 0, 1], [1, 1, 0], [1, 1, 0]]

    References
    ----------
    S. Banerjee, S. Ulukus, "Age of information in the presence of an adversary",
    arXiv:2202.04050, 2022.
    """

    pattern: Literal["sweep", "random", "block"] = "sweep"
    width: Annotated[Count, AtMost("n_channels")] = 1
    budget: Probability = 0.5
    dwell: Count = 10
    oblivious: bool = True

    @model_validator(mode="after")
    def _agree(self) -> Jammer:
        if self.pattern == "block":
            forbid(self, "pattern='block' is given", "dwell")
        return self

    def _pieces(self, rounds: int, structure: _Rng) -> Iterator[_Floats]:
        attack = self._block if self.pattern == "block" else self._periods
        return attack(self._rates(structure), rounds, structure)

    def _paid(self, rounds: int) -> int:
        """Return the number of rounds the budget pays for; 0.57 of 100 is 57 despite rounding."""
        return int(self.budget * rounds + 1e-9)

    def _block(self, free: _Floats, rounds: int, structure: _Rng) -> Iterator[_Floats]:
        """Return the means before, during and after the one attack."""
        length = self._paid(rounds)
        before = int(structure.integers(rounds - length + 1))
        targets = self._order(free, structure)[: self.width]
        jammed = free.copy()
        jammed[targets] = 0
        lengths = np.array([before, length, rounds - length - before])
        return held(np.stack([free, jammed, free])[lengths > 0], lengths[lengths > 0])

    def _periods(self, free: _Floats, rounds: int, structure: _Rng) -> Iterator[_Floats]:
        """Yield the means period by period, drawing a frame of periods at a time."""
        order = self._order(free, structure)
        idle = -(-rounds // self.dwell)  # future periods in which it is off
        paid = self._paid(rounds)
        busy = idle if paid == rounds else paid // self.dwell  # and on
        idle -= busy
        swept = 0
        while idle + busy > 0:
            size = min(max(_FRAME // self.dwell, 1), idle + busy)
            on = np.arange(size) < structure.hypergeometric(busy, idle, size)
            structure.shuffle(on)
            count = int(on.sum())
            if self.pattern == "sweep":
                steps = (swept + np.arange(count))[:, None] * self.width + np.arange(self.width)
                targets = order[steps % self.n_channels]
                swept += count
            else:
                targets = self._targets(free, count, structure)
            rows = np.tile(free, (size, 1))
            rows[np.flatnonzero(on)[:, None], targets] = 0
            yield from held(rows, np.full(size, self.dwell))
            busy -= count
            idle -= size - count

    def _order(self, free: _Floats, structure: _Rng) -> npt.NDArray[np.int64]:
        """Return all channels in the order in which they are attacked."""
        if not self.oblivious:
            return np.argsort(-free, kind="stable")
        if self.pattern == "block":
            return structure.permutation(self.n_channels)
        return np.roll(np.arange(self.n_channels), -int(structure.integers(self.n_channels)))

    def _targets(self, free: _Floats, count: int, structure: _Rng) -> npt.NDArray[np.int64]:
        """Draw ``count`` random sets of channels, each without replacement."""
        weights = np.ones_like(free) if self.oblivious else free
        with np.errstate(divide="ignore"):  # a weight of 0 comes last
            arrival = structure.standard_exponential((count, self.n_channels)) / weights
        return np.argsort(arrival, axis=1, kind="stable")[:, : self.width]
