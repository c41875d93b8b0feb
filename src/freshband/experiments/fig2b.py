"""Fig. 2(b): regret of GLR-CUCB by number of breakpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, final

import numpy as np
from numpy.typing import NDArray

from freshband.experiments.base import Claim, Experiment, Piece, Results, judge_order, register
from freshband.experiments.pictures import Picture, Series
from freshband.experiments.simulated import _fig2_piece, _judge_growth, _regret_of, _regret_picture

__all__ = ["Fig2b"]

_TOLD: Final = ("glr-cucb:paper", "glr-cucb:fresh")  # these can use the number of breakpoints
_POLICIES: Final = {"unknown": (*_TOLD, "bayes"), "known": _TOLD}
_LINES: Final = {"unknown": "-", "known": "--"}


@register("fig2b")
@final
@dataclass(frozen=True)
class Fig2b(Experiment):
    """Fig. 2(b) by its text: regret of GLR-CUCB and ours by number of breakpoints.

    "Known" is the exploration rate that uses the number of breakpoints C_T,
    `α = 0.05 sqrt(N (C_T + 1) ln T / T)`; "unknown" is the printed one.

    **Deviations.** The captions under (b) and (c) are swapped (E19); the text is followed.
    """

    title = "GLR-CUCB: regret by number of breakpoints"
    question = "Does regret grow with the number of breakpoints, and does knowing it help?"
    part = "Fig. 2b"
    order = 1
    time: ClassVar = {"quick": "seconds", "full": "4 minutes on a CPU"}
    quick: ClassVar = {"runs": 20, "counts": (0, 2, 5, 8, 12)}

    runs: int = 200
    counts: tuple[int, ...] = tuple(range(13))

    def pieces(self) -> Sequence[Piece]:
        """Return a simulation per number of breakpoints, each with the number known and unknown."""
        return [self._piece(count, told) for count in self.counts for told in _POLICIES]

    def _piece(self, count: int, told: str) -> Piece:
        names = _POLICIES[told]
        options = {"alpha": "besson", "n_segments": count + 1}
        return _fig2_piece(
            self._key(count, told),
            channel_options={"n_breakpoints": count},
            policies=list(names),
            policy_options={name: options for name in names if told == "known"},
            runs=self.runs,
            points=1,
        )

    def _key(self, count: int, told: str) -> str:
        return f"breakpoints-{self.scale}-{count:02}-{told}"

    def _regret(self, results: Results, policy: str, told: str) -> NDArray[np.float64]:
        return _regret_of([results[self._key(count, told)] for count in self.counts], policy)

    def claims(self, results: Results) -> Sequence[Claim]:
        """Judge whether regret grows with the breakpoints, and whether knowing them helps."""
        found = []
        counts = np.array(self.counts)
        for policy in _POLICIES["unknown"]:
            regret = self._regret(results, policy, "unknown")
            what = f"{policy}: regret grows with each breakpoint"
            found.append(_judge_growth(what, counts, regret, [str(c) for c in counts], "regret"))
            if policy in _TOLD:
                gain = (regret - self._regret(results, policy, "known"))[counts > 0].mean(axis=0)
                what = f"{policy}: knowing the number of breakpoints helps"
                why = "mean over all numbers of breakpoints"
                found.append(judge_order(what, "helps", gain, unit="regret", why=why))
        return found

    def _picture(self, results: Results) -> Picture:
        series = []
        for colour, policy in enumerate(_POLICIES["unknown"]):
            for told in ("unknown", "known") if policy in _TOLD else ("unknown",):
                regret = self._regret(results, policy, told)
                label, line = f"{policy}, number {told}", _LINES[told]
                series.append(Series(label, np.array(self.counts), regret, colour, line))
        return _regret_picture(series, "breakpoints in 20,000 rounds")

    figures: ClassVar = {"regret-by-breakpoints": _picture}
