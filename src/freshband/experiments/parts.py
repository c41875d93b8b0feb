"""Beyond the paper: how scheduling and the rule for lost updates affect accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from freshband.experiments.base import Claim, Results, judge_order, register
from freshband.experiments.fig3 import _SCHEDULER
from freshband.experiments.pictures import Picture
from freshband.experiments.rules import _ruled
from freshband.experiments.training import (
    _CHANNELS,
    QUICK,
    Place,
    Runs,
    Trained,
    accuracy_within,
    final_accuracy,
    gain_at_equal,
    needed_rounds,
)
from freshband.experiments.verdicts import interval

__all__ = ["Parts"]

_Curves = Mapping[str, NDArray[np.float64]]

_PLAIN = ("random", _SCHEDULER)
_STYLES = {"random": (0, ":"), _SCHEDULER: (4, ":")}  # the colours of Fig. 3


@register("parts")
@final
@dataclass(frozen=True)
class Parts(Trained):
    """Beyond the paper: how much accuracy comes from scheduling, and how much from the rule.

    Random scheduling and our scheduler, each with the paper's round and with the rule of
    `freshband.experiments.rules`, to separate the two effects. Beside the airs of Fig. 3, on which
    N = 1.5 M and no scheduler receives more than 1.3 times what random scheduling does, there is a
    wide one with N = 5 M, on which it can be 1.8 times.
    """

    title = "What scheduling gives, and what the rule for lost updates"
    question = "How much of ours comes from scheduling, and how much from the rule?"
    part = "Beyond the paper"
    order = 4
    time: ClassVar = {"quick": "minutes on a CPU", "full": "a quarter of an hour on an H200"}
    quick: ClassVar = {"places": (("digits", "wide"), ("digits", "extreme")), **QUICK}

    places: Sequence[Place] = tuple(product(["cifar10"], _CHANNELS))

    def roles(self, place: Place) -> Mapping[str, Runs]:
        """Return each scheduler with the paper's round, then each with the rule."""
        return {policy: Runs(policy) for policy in (*_PLAIN, *map(_ruled, _PLAIN))}

    def claims_at(self, results: Results, place: Place) -> Sequence[Claim]:
        """Compare rules under the same scheduler, and schedulers under the same rule."""
        random, ours, random_ruled, ours_ruled = self.roles(place)
        rules = [(random_ruled, random), (ours_ruled, ours)]
        schedulers = [(ours, random), (ours_ruled, random_ruled)]
        accuracy = self.measured(results, place, "accuracy")
        heard = self.measured(results, place, "n_delivered")
        final = {policy: final_accuracy(curves) for policy, curves in accuracy.items()}
        found = []
        for better, worse in rules + schedulers:
            what = f"{', '.join(place)}: {better} above {worse}, final accuracy"
            why = f"{final[worse].mean():.1f} -> {final[better].mean():.1f} %"
            gain = final[better] - final[worse]
            found.append(judge_order(what, "-", gain, unit="points", why=why))
        for better, worse in schedulers:
            what = f"{', '.join(place)}: {better} needs fewer rounds to {worse}'s final accuracy"
            saved = 1 - np.array(needed_rounds(accuracy[better], accuracy[worse]))
            why = _by_uploads(accuracy, heard, better, worse)
            found.append(judge_order(what, "-", saved, unit="of its rounds", why=why))
        return found

    def _over_rounds(self, results: Results) -> Picture:
        return self.draw_curves(results, "accuracy", _styles())

    def _over_uploads(self, results: Results) -> Picture:
        return self.draw_curves(results, "accuracy", _styles(), along="n_delivered")

    figures: ClassVar = {
        "scheduling-and-rule": _over_rounds,
        "scheduling-and-rule-by-uploads": _over_uploads,
    }


def _by_uploads(accuracy: _Curves, heard: _Curves, better: str, worse: str) -> str:
    """Return what a policy's gain is at equal uploads, and what its further uploads may be worth.

    The further uploads are as many as the last ones of the other policy, whose value its own curve
    shows.
    """
    total = heard[worse].sum(axis=1)
    share = total / heard[better].sum(axis=1)
    before, after = (
        accuracy_within(accuracy[worse], heard[worse], budget) for budget in (total * share, total)
    )
    return (
        f"{1 / share.mean():.2f} times the uploads; at equal uploads "
        f"{interval(gain_at_equal(accuracy, heard, better, worse))} points; the other's last "
        f"{1 - share.mean():.0%} of uploads gave it {interval(after - before)}"
    )


def _styles() -> dict[str, tuple[int, str]]:
    return _STYLES | {_ruled(policy): (colour, "-") for policy, (colour, _) in _STYLES.items()}
