"""Beyond the paper: how scheduling and the rule for lost updates affect accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar, final

import numpy as np

from freshband.experiments.base import Claim, Results, judge_order, register
from freshband.experiments.fig3 import _LEARNERS, _SCHEDULER
from freshband.experiments.pictures import Picture
from freshband.experiments.rules import _ruled
from freshband.experiments.training import _AIRS, Place, Runs, Trained

__all__ = ["Parts"]


@register("parts")
@final
@dataclass(frozen=True)
class Parts(Trained):
    """Beyond the paper: how much accuracy comes from scheduling, and how much from the rule.

    Random scheduling, the paper's learner with adaptive matching and our scheduler, each with the
    paper's round and with the rule that `freshband.experiments.rules` found best, to separate the
    two effects. Half of the runs are those of Fig. 3.

    CIFAR-100 takes long: its piecewise channels and the paper's learner on it are left out.
    """

    title = "What scheduling gives, and what the rule for lost updates"
    question = "How much of ours comes from scheduling, and how much from the rule?"
    part = "Beyond the paper"
    order = 3
    time: ClassVar = {"quick": "minutes on a CPU", "full": "half an hour on an H200"}
    quick: ClassVar = {"places": tuple(product(["digits"], _AIRS)), "runs": 2}

    places: Sequence[Place] = (
        ("cifar10", "piecewise"), ("cifar10", "extreme"), ("cifar100", "extreme"),
    )  # fmt: skip

    def roles(self, place: Place) -> Mapping[str, Runs]:
        """Return each scheduler with the paper's round, then each with the rule."""
        plain = self._schedulers(place)
        return {policy: Runs(policy) for policy in (*plain, *map(_ruled, plain))}

    def _schedulers(self, place: Place) -> list[str]:
        dataset, air = place
        learner = [f"{_LEARNERS[air]}+priority"] if dataset != "cifar100" else []
        return ["random", *learner, _SCHEDULER]

    def claims_at(self, results: Results, place: Place) -> Sequence[Claim]:
        """Compare rules under the same scheduler, and schedulers under the same rule."""
        plain = self._schedulers(place)
        pairs = [(_ruled(policy), policy) for policy in plain]
        pairs += [(policy, plain[0]) for policy in plain[1:]]
        pairs += [(_ruled(policy), _ruled(plain[0])) for policy in plain[1:]]
        accuracy = self.measured(results, place, "accuracy")
        whole = {policy: 100 * np.nanmean(curve, axis=1) for policy, curve in accuracy.items()}
        late = {policy: 100 * np.nanmean(c[:, -100:], axis=1) for policy, c in accuracy.items()}
        found = []
        for better, worse in pairs:
            for span, value in (("all rounds", whole), ("the last 100", late)):
                what = f"{', '.join(place)}: {better} above {worse}, accuracy over {span}"
                why = f"{value[worse].mean():.1f} -> {value[better].mean():.1f} %"
                gain = value[better] - value[worse]
                found.append(judge_order(what, "-", gain, unit="points", why=why))
        return found

    def _picture(self, results: Results) -> Picture:
        # The colours of Fig. 3; the second belongs to the learner with random matching.
        colours = {"random": 0, _SCHEDULER: 3} | {
            f"{each}+priority": 2 for each in _LEARNERS.values()
        }
        styles = {policy: (colour, ":") for policy, colour in colours.items()}
        styles |= {_ruled(policy): (colour, "-") for policy, colour in colours.items()}
        return self.draw_curves(results, "accuracy", styles)

    figures: ClassVar = {"scheduling-and-rule": _picture}
