"""Your own experiment in one file: the oldest client first, or random matching.

freshband --import examples/my_experiment.py reproduce oldest-first --out mine
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from freshband.experiments.base import Claim, Experiment, Piece, Results, judge_order, register
from freshband.experiments.pictures import Panel, Picture, Series
from freshband.experiments.simulated import simulation_piece

__all__ = ["OldestFirst"]

POLICIES = ("glr-cucb+random", "glr-cucb+age")  # the same scheduler with two matchings


@register("oldest-first")
@final
@dataclass(frozen=True)
class OldestFirst(Experiment):
    """The variance of ages with random matching and with the oldest client first."""

    title = "Oldest client first, by number of clients"
    question = "Does it help to give the oldest client the best channel?"
    time: ClassVar = {"quick": "seconds", "full": "a minute on a CPU"}
    quick: ClassVar = {"runs": 20, "rounds": 1_000}  # sizes at this scale; the others are full's

    runs: int = 50
    rounds: int = 5_000
    clients: Sequence[int] = (2, 3, 4)

    def pieces(self) -> Sequence[Piece]:
        """Return a simulation per number of clients; each becomes a file."""
        return [
            simulation_piece(
                f"oldest-first-{self.scale}-{n_clients}",
                channels="piecewise",
                policies=list(POLICIES),
                clients=n_clients,
                rounds=self.rounds,
                runs=self.runs,
                seed=0,
                points=1,
            )
            for n_clients in self.clients
        ]

    def claims(self, results: Results) -> Sequence[Claim]:
        """Judge, run by run, whether the variance is lower; "-": not a statement of the paper."""
        found = []
        for n_clients, result in zip(self.clients, results.values(), strict=True):
            drawn, oldest = (result.cumulative_variance.sel(policy=name) for name in POLICIES)
            what = f"M = {n_clients}: variance of ages, oldest first below random matching"
            found.append(judge_order(what, "-", drawn - oldest, unit="rounds²"))
        return found

    def _picture(self, results: Results) -> Picture:
        series = [
            Series(
                name,
                np.array(self.clients),
                np.array([each.cumulative_variance.sel(policy=name) for each in results.values()]),
                colour,
            )
            for colour, name in enumerate(POLICIES)
        ]
        title = f"{self.runs} runs, ± one standard error"
        return Picture([Panel("points", series, title, "clients", "cumulative AoI variance")])

    figures: ClassVar = {"variance-by-clients": _picture}
