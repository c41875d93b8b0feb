"""Channels under attack by a jammer that watches which channels are used."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from freshband.channels._fields import AtMost, Count, Probability, RatedBand
from freshband.channels.adversary import react
from freshband.channels.base import register
from freshband.ranking import take_best
from freshband.states import record

__all__ = ["Reactive"]


class ReactiveState(NamedTuple):
    """What the jammer has seen, and what it has spent."""

    uses: NDArray[np.int64]  # (N,) transmissions within the window
    seen: NDArray[np.uint8]  # (window, N) transmissions by round, the oldest overwritten
    targets: NDArray[np.int64]  # (width,)
    account: NDArray[np.void]  # budget, rounds jammed


@react.register(ReactiveState)
def _react(air: ReactiveState, t: int, assignment: Any, states: Any, means: Any) -> None:
    place = t % len(air.seen)
    for channel in range(len(air.uses)):
        air.uses[channel] -= air.seen[place, channel]
        air.seen[place, channel] = 0
    if t > 1:
        for client in range(len(assignment)):
            channel = assignment[client]
            if channel >= 0:
                air.seen[place, channel] += 1
                air.uses[channel] += 1
    # As in the jammer that does not react, 0.57 of 100 rounds are 57 despite rounding.
    if air.account[0]["jammed"] + 1 > air.account[0]["budget"] * t + 1e-9:
        return
    take_best(air.uses, t, air.targets)
    jammed = 0
    for i in range(len(air.targets)):
        channel = air.targets[i]
        if air.uses[channel] > 0:
            states[channel] = 0
            means[channel] = 0.0
            jammed = 1
    air.account[0]["jammed"] += jammed


@final
@register("reactive")
class Reactive(RatedBand):
    """Stationary channels under a jammer that blocks the channels it has seen in use.

    Before every round the jammer may block up to ``width`` channels: those with the most
    transmissions in the last ``window`` rounds, ties broken evenly. It never blocks a channel
    without transmissions there. A blocked channel is always Bad; the others are Good with
    probability `μ_k`. After t rounds the jammer has been active in at most `Bt` of them, with B
    the budget: what it does not spend, because nobody has transmitted, it keeps.

    Parameters
    ----------
    n_channels : int >= 1, default 5
        Number of channels N; follows from ``means`` where those are given.
    mean_low, mean_high : float, 0 <= mean_low <= mean_high <= 1, default 0.1 and 0.9
        The means of the free channels are drawn from U[mean_low, mean_high], once per run.
    means : list of float in [0, 1], optional
        The means of the free channels themselves.
    window : int >= 1, default 1
        The number of rounds over which transmissions are counted. 1: the jammer blocks channels
        used in the round before. Long: it blocks those that are used most.
    width : int in [1, n_channels], default 1
        Largest number of channels blocked at once.
    budget : float in [0, 1], default 0.5
        B, the largest share of the rounds in which the jammer may be active.

    Notes
    -----
    **Deviations.** The paper's adversary fixes its plan in advance (Sec. II-B) and cannot react.

    **Oracle.** Each policy plays against a jammer of its own, which answers its transmissions, over
    the same free air; so do the oracles, and regret is the difference between the two games.
    An oracle that knows the means knows those of the coming round, after jamming: it avoids what is
    blocked now. It does not plan ahead, so a policy that misleads the jammer can have negative
    regret. The best fixed set (`oracle:fixed`) is that of the free air.

    A block of this model, and the picture of ``freshband show``, is the free air.

    Examples
    --------
    >>> import numpy as np
    >>> from freshband.channels import Reactive, open_air
    >>> from freshband.channels.adversary import react, start_reacting
    >>> model = Reactive(means=[1, 1, 1], budget=1)
    >>> free, jammer = open_air(model, rounds=3, seed=0).block(3), start_reacting(model)
    >>> for t in (1, 2, 3):  # one client that never leaves channel 1
    ...     react(jammer, t, np.array([1]), free.states[t - 1], free.means[t - 1])
    >>> free.states.tolist()
    [[1, 1, 1], [1, 0, 1], [1, 0, 1]]
    """

    window: Count = 1
    width: Annotated[Count, AtMost("n_channels")] = 1
    budget: Probability = 0.5

    def start_reacting(self) -> ReactiveState:
        """Allocate the state of a jammer; see `freshband.channels.adversary`."""
        return ReactiveState(
            uses=np.zeros(self.n_channels, np.int64),
            seen=np.zeros((self.window, self.n_channels), np.uint8),
            targets=np.zeros(self.width, np.int64),
            account=record(budget=float(self.budget), jammed=0),
        )
