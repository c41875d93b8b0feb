"""Fig. 2(b): regret of GLR-CUCB by number of breakpoints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, final

import numpy as np
from numpy.typing import NDArray

from freshband.experiments.base import Claim, Experiment, Piece, Results, judge_order, register
from freshband.experiments.pictures import Picture, Series
from freshband.experiments.simulated import _fig2_piece, _judge_growth, _regret_of, _regret_picture

__all__ = ["Fig2b"]

_ROUNDS: Final = 20_000
_TOLD: Final = ("glr-cucb:paper", "glr-cucb:fresh")  # these can use the number of breakpoints
_KNOWN: Final = {"exploration": "--", "detector": ":"}  # what is told the number, and its line
_POLICIES: Final = {"unknown": (*_TOLD, "bayes"), **dict.fromkeys(_KNOWN, _TOLD)}
_LINES: Final = {"unknown": "-", **_KNOWN}


@register("fig2b")
@final
@dataclass(frozen=True)
class Fig2b(Experiment):
    """Fig. 2(b) by its text: regret of GLR-CUCB and ours by number of breakpoints.

    The number of breakpoints C_T can be used in two ways, and both are tried: by the exploration,
    `α = 0.05 sqrt(N (C_T + 1) ln T / T)`, and by the detector, of which the paper's text speaks,
    `δ = 1 / sqrt((C_T + 1) T)` (Besson et al.). Where it is unknown both are as printed.

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
        """Return simulations per number of breakpoints, with the number known and unknown."""
        return [self._piece(count, told) for count in self.counts for told in _POLICIES]

    def _piece(self, count: int, told: str) -> Piece:
        names = _POLICIES[told]
        options: dict[str, Any] = {}
        if told == "exploration":
            options = {"alpha": "besson", "n_segments": count + 1}
        elif told == "detector":
            options = {"delta": 1 / math.sqrt((count + 1) * _ROUNDS)}
        return _fig2_piece(
            self._key(count, told),
            channel_options={"n_breakpoints": count},
            policies=list(names),
            policy_options={name: options for name in names if options},
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
            for told in _KNOWN if policy in _TOLD else ():
                gain = (regret - self._regret(results, policy, told))[counts > 0].mean(axis=0)
                what = f"{policy}: knowing the number of breakpoints helps the {told}"
                why = "mean over all numbers of breakpoints"
                found.append(judge_order(what, "helps", gain, unit="regret", why=why))
        return found

    def _picture(self, results: Results) -> Picture:
        series = []
        for colour, policy in enumerate(_POLICIES["unknown"]):
            for told, line in _LINES.items():
                if policy not in _POLICIES[told]:
                    continue
                regret = self._regret(results, policy, told)
                label = policy if told == "unknown" else f"{policy}, {told} knows the number"
                series.append(Series(label, np.array(self.counts), regret, colour, line))
        return _regret_picture(series, "breakpoints in 20,000 rounds")

    figures: ClassVar = {"regret-by-breakpoints": _picture}
