"""Fig. 4: cumulative AoI variance over rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, final

import numpy as np
from numpy.typing import NDArray

from freshband.experiments.base import Claim, Piece, Results, judge, judge_order, register
from freshband.experiments.fig3 import _JUDGED, Fig3
from freshband.experiments.pictures import Panel, Picture, Series
from freshband.experiments.simulated import simulation_piece
from freshband.experiments.training import Place, Runs, Trained

__all__ = ["Fig4"]

_OURS: Final = "bayes"
_ORACLE: Final = "oracle:mean+age"
# The paper's cuts of random scheduling's variance, and the smallest of them, by channels.
_PAPER: Final = {"fig3-piecewise": ("73 to 78 %", 73.0), "fig3-extreme": ("71 to 75 %", 71.0)}


@dataclass(frozen=True)
class _Air:
    """An air (channel environment) on which ages alone are simulated, with the paper's learner."""

    channels: str
    options: Mapping[str, Any] = field(default_factory=dict)
    clients: int = 4
    learner: str = "m-exp3"

    @property
    def printed(self) -> str:
        return f"{self.learner}:paper"

    @property
    def policies(self) -> dict[str, str]:
        """The policies by the role they play."""
        return {
            "random": "random",
            "learner as printed, random matching": f"{self.printed}+random",
            "learner as printed, oldest first": f"{self.printed}+age",
            "learner corrected": self.learner,
            "glr-cucb:fresh": "glr-cucb:fresh",
            f"ours: {_OURS}": _OURS,
            "oracle that knows the means": _ORACLE,
        }


_AIRS: Final[Mapping[str, _Air]] = {
    "piecewise": _Air("fig3-piecewise", clients=20, learner="glr-cucb"),
    "still": _Air("fig3-extreme", {"hazard": 0.0}),
    **{f"hazard {h}": _Air("fig3-extreme", {"hazard": h}) for h in (0.002, 0.01, 0.04, 0.2)},
    "sweeping jammer": _Air("jammer", {"n_channels": 6, "pattern": "sweep"}),
    "blocking jammer": _Air("jammer", {"n_channels": 6, "pattern": "block"}),
}


@register("fig4")
@final
@dataclass(frozen=True)
class Fig4(Trained):
    """Fig. 4: cumulative AoI variance `Σ V_t / M` over rounds, from the runs of Fig. 3.

    How well channels can be learned depends on how fast they change, which the paper does not state
    for its extreme ones. So the ages alone are also simulated, with many runs: on piecewise ones,
    on six channels from almost constant ones to means that last five rounds on average, and under
    jammers.

    **Deviations.** The formula of the cumulative variance is our reading (E18).
    """

    title = "Cumulative AoI variance over rounds"
    question = "How much of the ages' variance does scheduling cut, and what can be cut at all?"
    part = "Fig. 4"
    order = 1
    time = Fig3.time
    quick: ClassVar = {**Fig3.quick, "simulated_runs": 40}

    simulated_runs: int = 400

    def pieces(self) -> Sequence[Piece]:
        """Return simulations of the ages alone, and the runs of Fig. 3."""
        simulated = [
            simulation_piece(
                f"moving-{self.scale}-{number}",
                channels=air.channels,
                channel_options=dict(air.options),
                policies=list(air.policies.values()),
                clients=air.clients,
                rounds=250,
                runs=self.simulated_runs,
                seed=0,
                points=1,
            )
            for number, air in enumerate(_AIRS.values())
        ]
        return [*simulated, *super().pieces()]

    def roles(self, place: Place) -> Mapping[str, Runs]:
        """Return the roles of Fig. 3."""
        return Fig3().roles(place)

    def claims(self, results: Results) -> Sequence[Claim]:
        """Judge the cuts of the variance, the slopes, and how accuracy spreads over clients."""
        found = [claim for name in _AIRS for claim in self._judge_learning(results, name)]
        return [*found, *super().claims(results)]

    def _totals(self, results: Results, name: str) -> dict[str, NDArray[np.float64]]:
        """Return the cumulative variance of the ages alone on an air, run by run, by policy."""
        total = results[f"moving-{self.scale}-{list(_AIRS).index(name)}"].cumulative_variance
        return {policy: total.sel(policy=policy).values for policy in _AIRS[name].policies.values()}

    def _judge_learning(self, results: Results, name: str) -> list[Claim]:
        """Judge the cuts on an air: the printed learner, and ours against the oracle."""
        air, total = _AIRS[name], self._totals(results, name)
        base, printed = total["random"], f"{air.printed}+age"
        cuts = {policy: 100 * _ratio(base - values, base) for policy, values in total.items()}
        found = []
        if air.channels in _PAPER:
            paper, bound = _PAPER[air.channels]
            why = f"the oracle that knows the means cuts {cuts[_ORACLE].mean():.0f} %"
            for who, policy in ((air.printed, printed), (f"ours, {_OURS}", _OURS)):
                what = f"{name}, ages alone: cut by {who}, oldest first"
                found.append(judge(what, paper, cuts[policy], at_least=bound, unit="%", why=why))
        if cuts[_ORACLE].mean() > 10:  # there is something to learn
            what = f"{name}, ages alone: ours closes at least half of the gap, random to oracle"
            gap = base - total[_ORACLE]
            theirs, ours = (100 * _ratio(base - total[each], gap) for each in (printed, _OURS))
            why = f"{air.printed}, oldest first: {theirs.mean():.0f} %"
            found.append(judge(what, "-", ours, at_least=50.0, unit="%", why=why))
        return found

    def claims_at(self, results: Results, place: Place) -> Sequence[Claim]:
        """Judge the trained runs; ages do not depend on the data set."""
        dataset, air = place
        if dataset != self.datasets[0]:
            return []
        paper, bound = _PAPER[f"fig3-{air}"]
        total = self.measured(results, place, "cumulative_variance")
        spread = self.measured(results, place, "accuracy_spread")
        last = {role: values[:, -1] for role, values in total.items()}
        rise = {role: values[:, -1] - values[:, 149] for role, values in total.items()}
        base, base_rise = last["random"], rise["random"]
        found = []
        for role in _JUDGED:
            what = f"{air}: cut of the cumulative variance against random, {role}"
            cut = 100 * _ratio(base - last[role], base)
            why = f"{base.mean():.0f} -> {last[role].mean():.0f}"
            found.append(judge(what, paper, cut, at_least=bound, unit="%", why=why))
            what = f"{air}: slope after round 150 over random's, {role}"
            slope = _ratio(rise[role], base_rise)
            why = f"{rise[role].mean() / 100:.2f} against {base_rise.mean() / 100:.2f} per round"
            found.append(judge(what, "0.2 / 1.5", slope, at_most=0.2 / 1.5, unit="ratio", why=why))
            what = f"{dataset}, {air}: spread of accuracy over clients, {role}, below random"
            gain = 100 * (spread["random"][:, -1] - spread[role][:, -1])
            found.append(judge_order(what, "-", gain, unit="points"))
        return found

    def _over_rounds(self, results: Results) -> Picture:
        return self.draw_curves(results, "cumulative_variance")

    def _by_air(self, results: Results) -> Picture:
        totals = [self._totals(results, name) for name in _AIRS]
        columns = zip(*(total.values() for total in totals), strict=True)
        roles = next(iter(_AIRS.values())).policies
        series = [
            Series(role, np.arange(len(_AIRS)), np.array(values), colour)
            for colour, (role, values) in enumerate(zip(roles, columns, strict=True))
        ]
        names = [f"{name.replace(' ', chr(10))}\nM = {air.clients}" for name, air in _AIRS.items()]
        ticks = list(enumerate(names))
        title = f"{self.simulated_runs} runs, ± one standard error"
        y_label = "cumulative AoI variance after 250 rounds"
        panel = Panel("bars", series, title, y_label=y_label, ticks=ticks)
        return Picture([panel], size=(9.5, 4.3))

    figures: ClassVar = {"age-variance": _over_rounds, "age-variance-by-air": _by_air}


def _ratio(above: NDArray[np.float64], below: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return values by run whose mean is the ratio of means, with its standard error."""
    ratio = above.mean() / below.mean()
    linearised: NDArray[np.float64] = ratio + (above - ratio * below) / below.mean()
    return linearised
