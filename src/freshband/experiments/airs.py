"""Fig. 4 on many airs: how much of the variance can be cut, by how channels change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, final

import numpy as np
from numpy.typing import NDArray

from freshband.experiments.base import Claim, Experiment, Machine, Piece, Results, judge, register
from freshband.experiments.pictures import Panel, Picture, Series
from freshband.experiments.simulated import simulation_piece
from freshband.experiments.tables import table_against

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Airs"]

_OURS: Final = "bayes"
_ORACLE: Final = "oracle:mean+age"
_FIXED: Final = "oracle:fixed+age"
# The paper's cuts of random scheduling's variance, and the smallest of them, by channels.
PAPER: Final = {"fig3-piecewise": ("73 to 78 %", 73.0), "fig3-extreme": ("71 to 75 %", 71.0)}


@dataclass(frozen=True)
class _Air:
    """An air (channel environment) on which ages are simulated, with the paper's learner."""

    channels: str
    options: Mapping[str, Any] = field(default_factory=dict)
    clients: int = 4
    learner: str = "m-exp3"
    against: str = ""  # the policy against which its tables were made

    @property
    def printed(self) -> str:
        return f"{self.learner}:paper"

    @property
    def oracle(self) -> str:
        """The yardstick: means where channels have them, else the best fixed set."""
        return _FIXED if self.against else _ORACLE

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
            "oracle: the means, or the best fixed set": self.oracle,
        }


_HARD: Final = {"n_channels": 6, "n_clients": 4}
_AIRS: Final[Mapping[str, _Air]] = {
    "piecewise": _Air("fig3-piecewise", clients=20, learner="glr-cucb"),
    "still": _Air("fig3-extreme", {"hazard": 0.0}),
    **{f"hazard {h}": _Air("fig3-extreme", {"hazard": h}) for h in (0.002, 0.01, 0.04, 0.2)},
    "sweeping jammer": _Air("jammer", {"n_channels": 6, "pattern": "sweep"}),
    "blocking jammer": _Air("jammer", {"n_channels": 6, "pattern": "block"}),
    "Theorem 2": _Air("hard-stationary", _HARD),
    "table against m-exp3": _Air("table", against="m-exp3:paper+age"),
    "table against glr-cucb": _Air("table", against="glr-cucb:paper+age"),
    "table against ours": _Air("table", against=_OURS),
}


@register("airs")
@final
@dataclass(frozen=True)
class Airs(Experiment):
    """Fig. 4 without training: cumulative AoI variance on airs from still ones to adversaries.

    How well channels can be learned depends on how fast they change, which the paper does not state
    for its extreme ones. Ages are simulated on piecewise channels, on six channels whose means
    last for ever down to five rounds on average, and against adversaries. Means that switch with a
    constant hazard are what `bayes` assumes: those airs are its home field. The paper's adversary
    fixes all states in advance, knowing the algorithm. So there are jammers that do not look, the
    hard instance of Theorem 2, and tables: each records a game in which a learner's oldest client
    never gets through (`freshband.experiments.tables`), and is then played to everybody.

    **Deviations.** The formula of the cumulative variance is our reading (E18).
    """

    title = "Cumulative AoI variance by air"
    question = "What can be cut of the ages' variance, by how channels change?"
    part = "Fig. 4, ages alone"
    order = 2
    time: ClassVar = {"quick": "seconds", "full": "a minute on a CPU"}
    quick: ClassVar = {"runs": 40, "tables": 4}

    runs: int = 400
    tables: int = 40  # made against each learner, and played in as many runs each

    def pieces(self) -> Sequence[Piece]:
        """Return a simulation per air."""
        return [
            self._tables(self._key(name), air) if air.against else self._drawn(self._key(name), air)
            for name, air in _AIRS.items()
        ]

    def _key(self, name: str) -> str:
        return f"air-{self.scale}-{name.replace(' ', '-').replace('.', '_').lower()}"

    def _drawn(self, key: str, air: _Air) -> Piece:
        return simulation_piece(
            key,
            channels=air.channels,
            channel_options=dict(air.options),
            policies=list(air.policies.values()),
            clients=air.clients,
            rounds=250,
            runs=self.runs,
            seed=0,
            points=1,
        )

    def _tables(self, key: str, air: _Air) -> Piece:
        """Return a piece that plays many tables, each in as many runs."""
        request: dict[str, Any] = {
            "policies": list(air.policies.values()),
            "clients": air.clients,
            "rounds": 250,
            "runs": self.runs // self.tables,
            "points": 1,
        }
        config = {**request, "against": air.against, "tables": self.tables}

        def make(machine: Machine) -> xr.Dataset:
            import xarray as xr

            from freshband.channels import Table
            from freshband.experiments.simulated import _thin
            from freshband.simulation.monte_carlo import simulate

            played = []
            for number in range(self.tables):
                states = table_against(air.against, air.clients, 6, 250, number)
                each = simulate(Table(states=states), **request, seed=number, **machine.where)
                played.append(_thin(each))
            runs = self.tables * (self.runs // self.tables)
            whole = xr.concat(played, dim="run", combine_attrs="override")
            return whole.assign_coords(run=np.arange(runs))

        return Piece(key, config, make)

    def claims(self, results: Results) -> Sequence[Claim]:
        """Judge the cuts of the variance, air by air."""
        return [claim for name in _AIRS for claim in self._judge(results, name)]

    def _totals(self, results: Results, name: str) -> dict[str, NDArray[np.float64]]:
        """Return the cumulative variance on an air, run by run, by policy.

        Runs of the same table are no independent evidence: their mean counts as one.
        """
        total = results[self._key(name)].cumulative_variance
        found = {each: total.sel(policy=each).values for each in _AIRS[name].policies.values()}
        if _AIRS[name].against:
            found = {each: v.reshape(self.tables, -1).mean(axis=1) for each, v in found.items()}
        return found

    def _judge(self, results: Results, name: str) -> list[Claim]:
        """Judge the cuts on an air: the printed learner, and ours against the oracle."""
        air, total = _AIRS[name], self._totals(results, name)
        base, printed = total["random"], f"{air.printed}+age"
        cuts = {policy: 100 * _ratio(base - values, base) for policy, values in total.items()}
        best = cuts[air.oracle].mean()
        found = []
        if air.channels in PAPER:
            paper, bound = PAPER[air.channels]
            why = f"the oracle that knows the means cuts {best:.0f} %"
            for who, policy in ((air.printed, printed), (f"ours, {_OURS}", _OURS)):
                what = f"{name}: cut by {who}, oldest first"
                found.append(judge(what, paper, cuts[policy], at_least=bound, unit="%", why=why))
        if best > 10:  # there is something to learn
            aim = "the best fixed set reaches" if air.against else "the oracle reaches"
            what = f"{name}: ours cuts at least half of what {aim}"
            gap = base - total[air.oracle]
            theirs, ours = (100 * _ratio(base - total[each], gap) for each in (printed, _OURS))
            why = f"it cuts {best:.0f} %; {air.printed}, oldest first: {theirs.mean():.0f} % of it"
            found.append(judge(what, "-", ours, at_least=50.0, unit="%", why=why))
        return found

    def _by_air(self, results: Results) -> Picture:
        totals = [self._totals(results, name) for name in _AIRS]
        columns = zip(*(total.values() for total in totals), strict=True)
        roles = next(iter(_AIRS.values())).policies
        runs = min(len(values) for values in totals[-1].values())
        series = [
            Series(role, np.arange(len(_AIRS)), _padded(values), colour)
            for colour, (role, values) in enumerate(zip(roles, columns, strict=True))
        ]
        names = [f"{name.replace(' ', chr(10))}\nM = {air.clients}" for name, air in _AIRS.items()]
        title = f"{self.runs} runs, {runs} tables; 95 % intervals"
        y_label = "cumulative AoI variance after 250 rounds"
        ticks = list(enumerate(names))
        panel = Panel("bars", series, title, y_label=y_label, ticks=ticks, log=True)
        return Picture([panel], size=(12.5, 4.6))

    figures: ClassVar = {"age-variance-by-air": _by_air}


def _padded(rows: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return rows as a matrix; a shorter row ends in NaN."""
    longest = max(map(len, rows))
    return np.array([np.pad(row, (0, longest - len(row)), constant_values=np.nan) for row in rows])


def _ratio(above: NDArray[np.float64], below: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return values by run whose mean is the ratio of means, with its standard error."""
    ratio = above.mean() / below.mean()
    linearised: NDArray[np.float64] = ratio + (above - ratio * below) / below.mean()
    return linearised
