"""Beyond the paper: how scheduling and the rule for lost updates affect accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar, final

from freshband.experiments.base import Claim, Results, judge_order, register
from freshband.experiments.fig3 import _SCHEDULER
from freshband.experiments.pictures import Picture
from freshband.experiments.rules import _ruled
from freshband.experiments.training import _CHANNELS, QUICK, Place, Runs, Trained, final_accuracy

__all__ = ["Parts"]

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
        pairs = [(random_ruled, random), (ours_ruled, ours)]  # the rule's part
        pairs += [(ours, random), (ours_ruled, random_ruled)]  # scheduling's part
        accuracy = self.measured(results, place, "accuracy")
        heard = self.measured(results, place, "n_delivered")
        final = {policy: final_accuracy(curves) for policy, curves in accuracy.items()}
        found = []
        for better, worse in pairs:
            what = f"{', '.join(place)}: {better} above {worse}, final accuracy"
            ratio = heard[better].mean() / heard[worse].mean()
            why = f"{final[worse].mean():.1f} -> {final[better].mean():.1f} %"
            why += f", with {ratio:.2f} times the uploads"
            gain = final[better] - final[worse]
            found.append(judge_order(what, "-", gain, unit="points", why=why))
        return found

    def _over_rounds(self, results: Results) -> Picture:
        return self.draw_curves(results, "accuracy", _styles())

    def _over_uploads(self, results: Results) -> Picture:
        return self.draw_curves(results, "accuracy", _styles(), along="n_delivered")

    figures: ClassVar = {
        "scheduling-and-rule": _over_rounds,
        "scheduling-and-rule-by-uploads": _over_uploads,
    }


def _styles() -> dict[str, tuple[int, str]]:
    return _STYLES | {_ruled(policy): (colour, "-") for policy, (colour, _) in _STYLES.items()}
