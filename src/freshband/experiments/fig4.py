"""Fig. 4: cumulative AoI variance over rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, final

from freshband.experiments.airs import PAPER, _ratio
from freshband.experiments.base import Claim, Results, judge, judge_order, register
from freshband.experiments.fig3 import _JUDGED, Fig3
from freshband.experiments.pictures import Picture
from freshband.experiments.training import Place, Runs, Trained

__all__ = ["Fig4"]


@register("fig4")
@final
@dataclass(frozen=True)
class Fig4(Trained):
    """Fig. 4: cumulative AoI variance `Σ V_t / M` over rounds, from the runs of Fig. 3.

    `freshband.experiments.airs` simulates the ages alone on more airs.

    **Deviations.** The formula of the cumulative variance is our reading (E18).
    """

    title = "Cumulative AoI variance over rounds"
    question = "How much of the ages' variance does scheduling cut?"
    part = "Fig. 4"
    order = 1
    time = Fig3.time
    quick: ClassVar = Fig3.quick

    def roles(self, place: Place) -> Mapping[str, Runs]:
        """Return the roles of Fig. 3."""
        return Fig3().roles(place)

    def claims_at(self, results: Results, place: Place) -> Sequence[Claim]:
        """Judge cuts and slopes of the variance, and how accuracy spreads over clients."""
        where, (paper, bound) = ", ".join(place), PAPER[f"fig3-{place[1]}"]
        total = self.measured(results, place, "cumulative_variance")
        spread = self.measured(results, place, "accuracy_spread")
        last = {role: values[:, -1] for role, values in total.items()}
        rise = {role: values[:, -1] - values[:, 149] for role, values in total.items()}
        base, base_rise = last["random"], rise["random"]
        found = []
        for role in _JUDGED:
            what = f"{where}: cut of the cumulative variance against random, {role}"
            cut = 100 * _ratio(base - last[role], base)
            why = f"{base.mean():.0f} -> {last[role].mean():.0f}"
            found.append(judge(what, paper, cut, at_least=bound, unit="%", why=why))
            what = f"{where}: slope after round 150 over random's, {role}"
            slope = _ratio(rise[role], base_rise)
            why = f"{rise[role].mean() / 100:.2f} against {base_rise.mean() / 100:.2f} per round"
            found.append(judge(what, "0.2 / 1.5", slope, at_most=0.2 / 1.5, unit="ratio", why=why))
            what = f"{where}: spread of accuracy over clients, {role}, below random"
            gain = 100 * (spread["random"][:, -1] - spread[role][:, -1])
            found.append(judge_order(what, "-", gain, unit="points"))
        return found

    def _over_rounds(self, results: Results) -> Picture:
        return self.draw_curves(results, "cumulative_variance")

    figures: ClassVar = {"age-variance": _over_rounds}
