"""Fig. 2(c): regret of M-Exp3 by number of channel sets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, final

import numpy as np

from freshband.experiments.base import Claim, Experiment, Piece, Results, register
from freshband.experiments.pictures import Picture, Series
from freshband.experiments.simulated import _fig2_piece, _judge_growth, _regret_of, _regret_picture

__all__ = ["Fig2c"]

_POLICIES: Final = ("m-exp3:paper", "m-exp3")


@register("fig2c")
@final
@dataclass(frozen=True)
class Fig2c(Experiment):
    """Fig. 2(c) by its text: regret of M-Exp3 as the number of channel sets C(N, 2) grows.

    Channels are stationary, and M = 2.

    **Deviations.** The captions under (b) and (c) are swapped (E19); the text is followed.
    """

    title = "M-Exp3: regret by number of channel sets"
    question = "Does the regret of M-Exp3 grow with the number of channel sets?"
    part = "Fig. 2c"
    order = 1
    time: ClassVar = {"quick": "seconds", "full": "20 seconds on a CPU"}
    quick: ClassVar = {"runs": 20, "channels": (3, 4, 5, 6, 8)}

    runs: int = 200
    channels: tuple[int, ...] = (3, 4, 5, 6, 7, 8)

    def pieces(self) -> Sequence[Piece]:
        """Return a simulation per number of channels."""
        return [
            _fig2_piece(
                f"channel-sets-{self.scale}-{n_channels}",
                channel_options={"n_channels": n_channels, "n_breakpoints": 0},
                policies=list(_POLICIES),
                runs=self.runs,
                points=1,
            )
            for n_channels in self.channels
        ]

    def claims(self, results: Results) -> Sequence[Claim]:
        """Judge whether regret grows with the logarithm of the number of sets."""
        found = []
        names = [f"N = {n}" for n in self.channels]
        for policy in _POLICIES:
            what = f"{policy}: regret grows with the number of channel sets"
            regret = _regret_of([*results.values()], policy)
            found.append(
                _judge_growth(what, np.log(self._sets()), regret, names, "regret per factor e")
            )
        return found

    def _sets(self) -> list[int]:
        return [math.comb(n, 2) for n in self.channels]

    def _picture(self, results: Results) -> Picture:
        sets = self._sets()
        series = [
            Series(policy, np.array(sets), _regret_of([*results.values()], policy), colour)
            for colour, policy in enumerate(_POLICIES)
        ]
        ticks = [(c, f"{c}\nN = {n}") for c, n in zip(sets, self.channels, strict=True)]
        return _regret_picture(series, "channel sets C(N, 2)", ticks)

    figures: ClassVar = {"regret-by-channel-sets": _picture}
